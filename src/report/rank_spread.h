// rank_spread: what the processes of a run say of their times (event `ranks`), stage by stage: mean, slowest, spread.
// Compared is what a stage computes and loads, the mean of a process's replicas: where one process is slow the others
// wait, and all have steps as long.
// Pure functions. What a rank did not tell is left out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::report {

// `ranks`: the list of the event. A list of {"stage", "processes", "mean_ms", "slowest_ms", "slowest_rank",
// "slowest_host", "spread_ms"}, by stage; null where it tells of fewer than two processes.
[[nodiscard]] nlohmann::ordered_json rank_spread(const nlohmann::ordered_json& ranks);

// Lines for people, of what rank_spread() gives; empty for null.
[[nodiscard]] std::string rank_spread_text(const nlohmann::ordered_json& spread);

}  // namespace sluice::report
