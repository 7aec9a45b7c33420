// traced_steps: parses --trace, and warns if a trace cannot be made. Values. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Step numbers, from 1; `last` is included.
struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 0;

  [[nodiscard]] bool is_empty() const { return last < first; }
  bool operator==(const StepRange&) const = default;

  [[nodiscard]] nlohmann::json to_json() const { return nlohmann::json::array({first, last}); }
  [[nodiscard]] static StepRange from_json(const nlohmann::json& json) { return {json.at(0), json.at(1)}; }
};

struct TracedSteps {
  StepRange own = {};
  StepRange torch = {};
};

// "10..14", or "10" for one step. An empty text gives an empty range. option: names it in the ConfigError.
[[nodiscard]] StepRange parse_step_range(const std::string& text, const char* option);

void check_trace(bool is_wanted, const config::Config& config);
void check_trace_file(const std::filesystem::path& file);

void warn_of_own_trace(const Setup& setup, bool is_wanted, bool is_rank_0s);
void warn_of_no_steps(const StepRange& steps, std::int64_t steps_done);

}  // namespace sluice::train
