#include "train/resume.h"

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "train/records/checkpoint_store.h"
#include "train/records/run_dir.h"
#include "train/setup.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

constexpr int kStateFormat = 1;

// The newest run of this configuration that has a whole checkpoint.
std::optional<fs::path> newest_run(const std::string& config_name) {
  for (const auto& run : RunDir::named("runs", config_name)) {
    if (newest_checkpoint(run)) return run;
  }
  return std::nullopt;
}

bool same_directory(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error);
}

}  // namespace

bool is_checkpoint(const fs::path& dir) { return fs::exists(dir / "state.json"); }

std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  if (!fs::is_directory(run / "checkpoints")) return std::nullopt;
  return scan_checkpoints(run / "checkpoints").newest;
}

nlohmann::ordered_json plan_json(const Plan& plan) {
  return {{"stages", plan.stages()},           {"partition", plan.partition.layers_per_stage},
          {"replicas", plan.replicas},         {"chunks", plan.chunks},
          {"global_batch", plan.global_batch}, {"schedule", plan.schedule}};
}

nlohmann::json RunState::to_json() const {
  return {{"state_format", kStateFormat},
          {"step", progress.steps_done},
          {"position", {{"epoch", progress.position.epoch}, {"batch", progress.position.batch}}},
          {"optimizer_steps", optimizer_steps},
          {"plan", nlohmann::json(plan_json(plan))},
          {"metrics", {{"bytes", metrics.bytes}, {"time_s", metrics.time_s}}},
          {"config", config_toml}};
}

RunState RunState::from_json(const nlohmann::json& json, const std::string& source) {
  try {
    if (json.at("state_format").get<int>() != kStateFormat) {
      throw CheckpointError(concat(source, ": state format ", json.at("state_format").dump(), " is not ", kStateFormat,
                                   "; resume with the version of Sluice that wrote it"));
    }
    RunState state;
    state.progress = {json.at("step"), {json.at("position").at("epoch"), json.at("position").at("batch")}};
    state.optimizer_steps = json.at("optimizer_steps");
    const auto& plan = json.at("plan");
    state.plan = {.partition = {plan.at("partition").get<std::vector<int>>()},
                  .replicas = plan.at("replicas"),
                  .chunks = plan.at("chunks"),
                  .global_batch = plan.at("global_batch"),
                  .schedule = plan.at("schedule")};
    state.metrics = {json.at("metrics").at("bytes"), json.at("metrics").at("time_s")};
    state.config_toml = json.at("config");
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        concat(source, ": state.json does not hold a training state (", error.what(), "); use another checkpoint"));
  }
}

ResumeChoice choose_resume(const std::string& resume, const fs::path& run_dir, const std::string& config_name) {
  if (resume.empty()) return {.run_dir = run_dir};
  if (resume == "auto") {
    const fs::path run = run_dir.empty() ? newest_run(config_name).value_or(fs::path{}) : run_dir;
    const auto checkpoint = run.empty() ? std::nullopt : newest_checkpoint(run);
    if (!checkpoint) log_info("--resume auto: there is no checkpoint yet, so a new run begins");
    return {.run_dir = run, .checkpoint = checkpoint, .continues_run_dir = checkpoint.has_value()};
  }
  const fs::path dir = (fs::path(resume) / "").parent_path();  // without a final slash
  const auto checkpoint = is_checkpoint(dir) ? std::optional(dir) : newest_checkpoint(dir);
  if (!checkpoint) {
    throw ConfigError(
        concat("--resume ", resume,
               ": there is no whole checkpoint; give a run directory, one of its checkpoints/step-N, or \"auto\""));
  }
  // A checkpoint that was copied out of its run belongs to none.
  fs::path owner = dir;
  if (is_checkpoint(dir)) {
    const fs::path parent = fs::absolute(dir).parent_path();
    owner = parent.filename() == "checkpoints" ? parent.parent_path() : fs::path{};
  }
  const fs::path target = run_dir.empty() ? owner : run_dir;
  return {.run_dir = target,
          .checkpoint = checkpoint,
          .continues_run_dir = !owner.empty() && same_directory(target, owner)};
}

void check_resumable(const config::Config& config, const RunState& state, const std::string& source) {
  const config::Config saved = config::parse(state.config_toml, concat(source, "/state.json config"));
  const auto refuse = [&](const char* key, const auto& now, const auto& then) {
    if (now == then) return;
    throw ConfigError(
        concat("cannot resume ", source, " with ", key, " = ", now, ": it was made with ", then,
               ", and what was saved depends on it; use the same value or begin a new run with model.weights"));
  };
  refuse("train.seed", config.train.seed, saved.train.seed);
  refuse("train.global_batch", config.train.global_batch, saved.train.global_batch);
  refuse("data.name", config.data.name, saved.data.name);
  refuse("data.limit", config.data.limit, saved.data.limit);
  refuse("data.samples", config.data.samples, saved.data.samples);
  refuse("data.crop_padding", config.data.crop_padding, saved.data.crop_padding);
  refuse("data.flip", config.data.flip, saved.data.flip);
  refuse("model.image_size", config.model.image_size, saved.model.image_size);
  refuse("model.channels", config.model.channels, saved.model.channels);
  refuse("train.precision", config.train.precision, saved.train.precision);
  refuse("train.optimizer", config.train.optimizer, saved.train.optimizer);
}

bool plan_can_be_kept(const config::Config& config, const Plan& saved) {
  const bool partition_agrees =
      !config.pipeline.partition || *config.pipeline.partition == saved.partition.layers_per_stage;
  const bool chunks_agree = chunks_are_open(config) || configured_chunks(config) == saved.chunks;
  return saved.stages() == config.pipeline.stages && saved.replicas == config.replicas.local &&
         saved.schedule == config.pipeline.schedule && partition_agrees && chunks_agree;
}

}  // namespace sluice::train
