#include "app/commands/tune_files.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>

#include "config/config.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "profiler/layer_profile.h"
#include "storage/files.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

// Returns "tuned.profile.json" for "tuned.toml". A profile with another number of threads than the chosen plan's is
// "tuned.profile.2-threads.json".
fs::path profile_file(fs::path out, int other_threads = 0) {
  const std::string threads = concat(".", other_threads, other_threads == 1 ? "-thread" : "-threads");
  return out.replace_extension(concat(".profile", other_threads > 0 ? threads : "", ".json"));
}

bool is_taken(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored) && !profiler::is_profile(file);
}

std::string shell_word(const std::string& text) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_./:=@%+,-").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

void write_profiles(const train::TuneResult& result, const fs::path& out, TuneFiles& files) {
  for (const profiler::LayerProfile& profile : result.measured_profiles) {
    const bool is_own = &profile == &result.measured_profiles.front();
    const fs::path file = is_own ? profile_file(out) : profile_file(out, profile.fingerprint.threads_per_device);
    if (!is_own && is_taken(file)) {
      log_warning(file.string(), " exists and is not a Sluice profile; not writing the profile for ",
                  profile.fingerprint.threads_per_device, " threads per device");
      continue;
    }
    std::error_code ignored;
    if (fs::exists(file, ignored)) files.replaced.push_back(file.string());
    storage::write_text_atomically(file, profiler::to_json_text(profile));
    files.profiles.push_back(file.string());
  }
}

}  // namespace

void check_tune_files(const fs::path& out, const std::vector<fs::path>& inputs, bool measures) {
  storage::check_output("--out", out, inputs);
  if (!measures) return;
  const fs::path profile = profile_file(out);
  storage::check_output("the profile beside --out,", profile, inputs);
  if (is_taken(profile))
    throw ConfigError(profile.string(),
                      " exists and is not a Sluice profile, but tune would write its profile there; move the file, or "
                      "give another --out or a --profile");
}

TuneFiles write_tune_files(const train::TuneResult& result, const fs::path& out, const ConfigText& config) {
  TuneFiles files{.out = out.string()};
  write_profiles(result, out, files);
  const bool has_other_batch = result.batch && result.batch->changes();
  const std::string first_line =
      concat("# ", config.file, ", with the plan", has_other_batch ? ", the global batch and its learning rate" : "",
             " that sluice tune found", result.is_verified ? "" : kNotVerified, "\n\n");
  std::string text = config::text_with(config.text, config.file, result.tuned);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());  // no longer at the start
  storage::write_text_atomically(out, concat(first_line, text));
  const std::string profile = files.profiles.empty() ? result.profile_file.string() : files.profiles.front();
  files.simulate = concat("sluice simulate ", shell_word(files.out), " --profile ", shell_word(profile));
  return files;
}

}  // namespace sluice::app
