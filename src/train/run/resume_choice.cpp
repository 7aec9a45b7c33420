#include "train/run/resume_choice.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "storage/checkpoint.h"
#include "storage/files.h"
#include "storage/run_dir.h"
#include "train/setup/schedule_file.h"
#include "train/setup/setting_differences.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOrigin = "# made from ";

bool has_checkpoints(const fs::path& run) {
  std::error_code ignored;
  return std::ranges::any_of(
      fs::directory_iterator(run / "checkpoints", ignored),
      [](const fs::directory_entry& entry) { return storage::step_of(entry.path()).has_value(); });
}

bool same_directory(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error);
}

// True if a run's newest checkpoint was trained on the configured data, wherever they are stored.
bool has_same_data(const fs::path& run, const config::Config& config) {
  const auto checkpoint = find_checkpoint(run);
  if (!checkpoint) return false;
  const RunState state = RunState::from_json(storage::read_state(*checkpoint), checkpoint->string());
  return state.data && state.data->train == identity_of(*open_sets(config).first);
}

// Makes the changes that make_setup() writes into a run's config.toml: a worker's batch, and the chunks of the schedule
// file (as the run keeps it, even if the file has changed).
config::Config settled_as(const config::Config& saved, config::Config now) {
  settle_worker(now);
  if (now.pipeline.order.empty()) return now;
  if (now.pipeline.order != saved.pipeline.order) return settled_by_schedule(read_configured_schedule(now), now);
  now.pipeline.chunks = saved.pipeline.chunks;
  return now;
}

std::string why_another(const fs::path& run, const fs::path& config_file, const config::Config& config,
                        NewData new_data) {
  config::Config saved, now;
  try {
    const std::string text = storage::read_text(run / "config.toml");
    const std::string origin(first_line(text));
    if (origin.starts_with(kOrigin) && origin != origin_line(config_file)) return concat("it was", origin.substr(1));
    saved = config::parse(text, (run / "config.toml").string());
    now = settled_as(saved, config);
  } catch (const Error& error) {
    return concat("cannot compare its configuration: ", error.what());
  }
  std::vector<Difference> differences = find_learned_differences(now, saved);
  if (new_data == NewData::kAccepted)
    std::erase_if(differences, [](const Difference& difference) { return selects_data(difference.key); });
  if (differences.empty()) return {};
  try {
    if (differences.size() == 1 && differences.front().key == "data.path" && has_same_data(run, now)) return {};
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return in_words(differences);
}

fs::path newest_run(const fs::path& config_file, const config::Config& config, NewData new_data) {
  fs::path found, newest_other;
  std::string why_other;
  int others = 0;
  for (const auto& run : storage::RunDir::named("runs", config_file.stem().string())) {
    if (!has_checkpoints(run)) continue;
    const std::string why = why_another(run, config_file, config, new_data);
    if (why.empty()) {
      found = run;
      break;
    }
    if (others++ > 0) continue;
    newest_other = run;
    why_other = why;
  }
  if (others > 0) {
    log_info("--resume auto skips ", newest_other.string(),
             others > 1 ? concat(" and ", counted(others - 1, "older run")) : std::string{}, ": ", why_other,
             ". To continue it, pass --resume ", newest_other.string(), ".");
  }
  return found;
}

}  // namespace

std::string origin_line(const fs::path& config_file) {
  if (config_file.empty()) return concat(kOrigin, "no file");
  return concat(kOrigin, printable(fs::absolute(config_file).lexically_normal().string()));
}

ResumeChoice choose_resume(const std::string& resume, const fs::path& run_dir, const fs::path& config_file,
                           const config::Config& config, NewData new_data) {
  if (resume.empty()) return {.run_dir = run_dir};
  if (resume == "auto") {
    const fs::path run = run_dir.empty() ? newest_run(config_file, config, new_data) : run_dir;
    return {.run_dir = run, .from = run, .continues_run_dir = !run.empty()};
  }
  const fs::path dir = (fs::path(resume) / "").parent_path();  // removes a final slash
  // A checkpoint that was copied out of its run has no owner.
  fs::path owner = dir;
  if (is_checkpoint(dir)) {
    const fs::path parent = fs::absolute(dir).parent_path();
    owner = parent.filename() == "checkpoints" ? parent.parent_path() : fs::path{};
  }
  const fs::path target = run_dir.empty() ? owner : run_dir;
  return {.run_dir = target,
          .from = dir,
          .continues_run_dir = !owner.empty() && (target == owner || same_directory(target, owner))};
}

}  // namespace sluice::train
