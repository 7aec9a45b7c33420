// contention: devices of one machine that compute at the same time take memory bandwidth, caches and clock from each
// other. An action takes 1 + (slowdown - 1) * n / (contenders - 1) times as long, where n other devices work beside it
// in the mean, and `slowdown` was measured with all `contenders` at work (measure/measure_slowdowns.h). All
// replicas of a machine run the same actions at the same time.
// Where more devices work than there are cores for, they share the cores evenly: while k work of which r can run at
// once, each takes k / r times as long. Times that, not the larger of both: those that run take memory from each other
// as r devices do that have cores of their own, and each of them waits besides. So k devices never do more in a second
// than r. Devices that wait for a result take no core.
// Not here: devices of other machines. Pure.
#pragma once

#include <limits>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::tune {

struct Contention {
  std::vector<double> slowdowns;                              // [stage], at least 1; empty: none
  int contenders = 1;                                         // 1: nothing slows anything down
  int replicas = 1;                                           // on this machine
  double runnable = std::numeric_limits<double>::infinity();  // devices that the cores can run at once; more than 0

  // How many times as long an action takes while so many devices work, for want of cores.
  [[nodiscard]] double waiting(double working) const;
  // The share of `slowdown` - 1 that so many devices at work make. A core runs one at a time, when measuring, too.
  [[nodiscard]] double share_of_slowdown(double working) const;
  [[nodiscard]] double most_beside() const;  // other devices that ran beside one where the slowdowns were measured
};

// The schedule in times that overlap slows down. Requires: as pipeline::simulate().
[[nodiscard]] pipeline::Simulation simulate_contention(const pipeline::Schedule& schedule, pipeline::Costs costs,
                                                       const Contention& contention);
[[nodiscard]] pipeline::Simulation simulate_contention(const pipeline::Simulator& simulator, pipeline::Costs costs,
                                                       const Contention& contention);

}  // namespace sluice::tune
