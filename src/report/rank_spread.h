// rank_spread: compares the processes of a run (event `ranks`) per stage: mean, slowest, spread. It compares the
// compute and load time, averaged over a process's replicas, because step times are equal: fast processes wait for slow
// ones. Skips fields that a rank did not report.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::report {

// Returns a list of {"stage", "processes", "mean_ms", "slowest_ms", "slowest_rank", "slowest_host", "spread_ms"}; null
// for fewer than two processes.
[[nodiscard]] nlohmann::ordered_json rank_spread(const nlohmann::ordered_json& ranks);

[[nodiscard]] std::string rank_spread_text(const nlohmann::ordered_json& spread);

}  // namespace sluice::report
