// loading: what the threads that prepare the next batch cost a step. They work while devices compute, so there are two
// costs: a batch may not be ready in time, and on CPU devices they take cores away from the devices.
// n threads on c cores have c / n of a core each, where n > c. While w loader threads need L seconds of processor time
// for a batch, D device threads so lose L (D + w - c) / (w c) seconds each; where D > c, beside what they had by
// themselves, L / c. Where devices wait for each other they lose less. Not here: measuring (measure/measure_loading.h).
// Pure. Times in seconds.
#pragma once

#include "core/load_cost.h"

namespace sluice::tune {

struct Loading {
  LoadCost cost;
  int threads = 1;       // 0: the thread that trains loads, and nothing goes on meanwhile
  double samples = 0;    // a step, of this process
  int cores = 1;         // of this process
  int busy_threads = 0;  // of devices that compute on these cores
};

struct LoadTimes {
  double slows = 0;  // devices, by so much
  double waits = 0;  // for the batch, after that
};
// step: without loading.
[[nodiscard]] LoadTimes load_times(const Loading& loading, double step);

}  // namespace sluice::tune
