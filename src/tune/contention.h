// contention: models devices of one machine that compete for memory bandwidth, caches, clock and cores.
// Memory: an action takes 1 + (slowdown - 1) * n / (contenders - 1) times as long, with n other devices working beside
// it on average. `slowdown` was measured with all `contenders` busy (measure/measure_slowdowns.h). All replicas of a
// machine run the same actions at the same time.
// Cores: if k devices work and only r can run at once, each takes k / r times as long. The two factors multiply: the r
// running devices compete for memory, and each also waits for a core. So k devices together are never faster than r.
// Devices that wait for a result use no core. Pure.
#pragma once

#include <limits>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::tune {

struct Contention {
  std::vector<double> slowdowns;  // [stage], at least 1; empty: no slowdown
  int contenders = 1;
  int replicas = 1;
  double runnable = std::numeric_limits<double>::infinity();  // devices that the cores can run at once; above 0

  // Factor on an action's time from waiting for cores while `working` devices work.
  [[nodiscard]] double waiting(double working) const;
  // Share of `slowdown` - 1 that applies while `working` devices work. The cores limit how many compete, also when the
  // slowdowns were measured.
  [[nodiscard]] double share_of_slowdown(double working) const;
  [[nodiscard]] double most_beside() const;  // other devices running beside one when the slowdowns were measured
};

[[nodiscard]] pipeline::Simulation simulate_contention(const pipeline::Schedule& schedule, pipeline::Costs costs,
                                                       const Contention& contention);
[[nodiscard]] pipeline::Simulation simulate_contention(const pipeline::Simulator& simulator, pipeline::Costs costs,
                                                       const Contention& contention);

}  // namespace sluice::tune
