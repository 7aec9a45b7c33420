// traced_steps: which steps of a run are traced: what --trace may say, and what is said where it comes to nothing.
// Values. Not here: tracing them (step_trace.h, torch_steps.h). Errors: ConfigError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Steps by their numbers, from 1, the last one included.
struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 0;

  [[nodiscard]] bool is_empty() const { return last < first; }
  bool operator==(const StepRange&) const = default;

  [[nodiscard]] nlohmann::json to_json() const { return nlohmann::json::array({first, last}); }
  [[nodiscard]] static StepRange from_json(const nlohmann::json& json) { return {json.at(0), json.at(1)}; }
};

// Of a run: of --trace, and those that LibTorch's profiler sees (torch_steps.h).
struct TracedSteps {
  StepRange own = {};
  StepRange torch = {};
};

// "10..14", or "10" for that step alone; empty: none. option: for the message. Throws ConfigError for another text.
[[nodiscard]] StepRange parse_step_range(const std::string& text, const char* option);

// Throws ConfigError where nothing records the spans that a trace is made of.
void check_trace(bool is_wanted, const config::Config& config);
// Throws ConfigError where the file's ending is one that no reader takes.
void check_trace_file(const std::filesystem::path& file);

// Warns where a process that is not rank 0 was given a --trace of its own: rank 0's counts.
void warn_of_own_trace(const Setup& setup, bool is_wanted, bool is_rank_0s);
// Warns of a trace of a run whose steps were all done before.
void warn_of_no_steps(const StepRange& steps, std::int64_t steps_done);

}  // namespace sluice::train
