// compare_runs: the first difference between two runs by their digests (`digest` records in metrics.jsonl, with layers
// if log.digest_layers was set). Errors: ConfigError for a path that is no run directory; DataError if the records
// cannot be read or have no step in common.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace sluice::report {

struct RunDifference {
  std::int64_t step = 0;
  std::int64_t equal_until = 0;  // last step before it with equal digests; 0: none
  // "weights", "optimizer" or "ema"; with layers: "forward", "backward", "sum", "update", "buffers", or "layers" if the
  // runs have different ones.
  std::string what;
  std::string name;                         // of the layer, parameter or buffer; empty without layers
  std::optional<std::int64_t> micro_batch;  // of "forward" and "backward"
  bool has_layers = false;                  // both runs have digests of layers for this step
};

struct RunComparison {
  std::int64_t steps = 0;        // that both runs have digests of
  std::int64_t last_step = 0;    // of these
  std::int64_t only_in_one = 0;  // digests of steps that only one of the runs has
  std::optional<RunDifference> first;
};

[[nodiscard]] RunComparison compare_runs(const std::filesystem::path& a, const std::filesystem::path& b);

// {"first_difference": {...} or null, "steps": n, "last_step": n, "only_in_one": n}
[[nodiscard]] nlohmann::ordered_json to_json(const RunComparison& comparison);
[[nodiscard]] std::string describe(const RunComparison& comparison);

}  // namespace sluice::report
