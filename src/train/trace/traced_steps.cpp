#include "train/trace/traced_steps.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/log.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kMostSteps = 1000;  // their spans stay in memory until they are written

std::optional<std::int64_t> step_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

}  // namespace

StepRange parse_step_range(const std::string& text, const char* option) {
  if (text.empty()) return {};
  const std::size_t dots = text.find("..");
  const auto first = step_number(std::string_view(text).substr(0, dots));
  const auto last = dots == std::string::npos ? first : step_number(std::string_view(text).substr(dots + 2));
  if (!first || !last || *last < *first)
    throw ConfigError(option, " ", text, " is not a range of steps; write 10..14, or 10 for one step");
  if (*last - *first >= kMostSteps)
    throw ConfigError(option, " ", text, " selects ", *last - *first + 1, " steps; at most ", kMostSteps,
                      " fit in memory");
  return {*first, *last};
}

void check_trace(bool is_wanted, const config::Config& config) {
  if (is_wanted && config.profile.level == "off")
    throw ConfigError(
        "--trace needs spans, which profile.level = \"off\" does not record; set profile.level = \"events\"");
}

void check_trace_file(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  if (file.empty() || name.ends_with(".json") || name.ends_with(".json.gz")) return;
  throw ConfigError("--trace ", file.string(), ": the name of a trace file must end in .json or .json.gz");
}

void warn_of_own_trace(const Setup& setup, bool is_wanted, bool is_rank_0s) {
  if (!is_wanted || setup.process.rank == 0 || is_rank_0s) return;
  log_warning("--trace is ignored on rank ", setup.process.rank,
              "; pass it to rank 0, which controls tracing for all ranks");
}

void warn_of_no_steps(const StepRange& steps, std::int64_t steps_done) {
  if (steps.is_empty()) return;
  log_warning("--trace: the run is already complete after step ", steps_done, ", so there is no trace");
}

}  // namespace sluice::train
