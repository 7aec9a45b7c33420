#include "tune/loading.h"

#include <algorithm>

namespace sluice::tune {

LoadTimes load_times(const Loading& loading, double step) {
  const double wall = loading.samples * loading.cost.sample_s, cpu = loading.samples * loading.cost.cpu_s;
  if (loading.threads == 0) return {.waits = wall};
  // Devices that already share the cores (contention.h) lose only what the loader threads take.
  const int too_many = loading.busy_threads + loading.threads - std::max(loading.cores, loading.busy_threads);
  LoadTimes times;
  if (loading.busy_threads > 0 && too_many > 0) times.slows = cpu * too_many / (loading.threads * loading.cores);
  const double batch = std::max(wall / loading.threads, cpu / loading.cores);
  times.waits = std::max(0.0, batch - step - times.slows);
  return times;
}

}  // namespace sluice::tune
