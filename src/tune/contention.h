// contention: devices of one machine that compute at the same time take memory bandwidth, caches and clock from each
// other. An action takes 1 + (slowdown - 1) * n / (contenders - 1) times as long, where n other devices work beside it
// in the mean, and `slowdown` was measured with all `contenders` at work (profiler/measure/measure_slowdowns.h). All
// replicas of a machine run the same actions at the same time. Not here: devices of other machines. Pure.
#pragma once

#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::tune {

struct Contention {
  std::vector<double> slowdowns;  // [stage], at least 1; empty: none
  int contenders = 1;             // 1: nothing slows anything down
  int replicas = 1;               // on this machine
};

// The schedule in times that overlap slows down. Requires: as pipeline::simulate().
[[nodiscard]] pipeline::Simulation simulate_contention(const pipeline::Schedule& schedule, pipeline::Costs costs,
                                                       const Contention& contention);
[[nodiscard]] pipeline::Simulation simulate_contention(const pipeline::Simulator& simulator, pipeline::Costs costs,
                                                       const Contention& contention);

}  // namespace sluice::tune
