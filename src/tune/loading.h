// loading: the cost of loader threads for a step. A batch may be late, and loader threads take cores from CPU devices.
// n threads on c < n cores get c / n of a core each. While w loader threads need L seconds of CPU time for a batch,
// each of D device threads loses L (D + w - c) / (w c) seconds. If D > c, it loses L / c besides what the devices lose
// to each other. Devices that wait for each other lose less; this is ignored. Pure. Times in seconds.
#pragma once

#include "core/load_cost.h"

namespace sluice::tune {

struct Loading {
  LoadCost cost;
  int threads = 1;  // 0: the training thread loads, without overlap
  double samples = 0;
  int cores = 1;
  int busy_threads = 0;  // device threads that compute on these cores
};

struct LoadTimes {
  double slows = 0;  // time added to each device's compute
  double waits = 0;  // remaining wait for the batch
};
[[nodiscard]] LoadTimes load_times(const Loading& loading, double step);

}  // namespace sluice::tune
