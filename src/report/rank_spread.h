// rank_spread: compares the processes of a run (event `ranks`) per stage by compute and load time, averaged over
// replicas; step times are equal, because fast processes wait for slow ones.
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
