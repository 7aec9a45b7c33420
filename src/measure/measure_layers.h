// measure_layers: measures each layer of the configured model on the first device of this process, for
// pipeline.partition = "auto" and `sluice profile`. Sizes alternate, and the shortest time counts, because other load
// only adds time. The loss belongs to the last layer. Bytes are those of the longest possible texts, times those of
// usual ones. Threads: works in its own thread; the caller waits. Errors: "measuring the layers: ...".
#pragma once

#include <cstdint>
#include <vector>

#include "measure/workload.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

struct LayerMeasurement {
  std::vector<std::int64_t> sizes;  // micro-batches, in samples, ascending
  int least_rounds = 3;             // after a warm-up; each round runs every size
  int most_rounds = 3;
  double budget_s = 0;  // further rounds begin until the rounds have taken this long
  // The budget then covers all measuring. The only size is halved until passes fit in it.
  bool fits_budget = false;
  // Larger sizes are dropped if the device has no memory for them, or if `least_rounds` of them exceed the budget.
  std::int64_t needed_size = 0;
  // Seconds for all measuring; 0: no limit. The largest sizes are dropped first; the two smallest are always measured.
  double limit_s = 0;
  bool with_memory = true;
  // Bytes are measured at all sizes, and also at doubles of the largest size up to this one.
  std::int64_t most_samples = 0;
  // On a GPU: times of its kernels by CUPTI if available, else by events.
  bool with_kernels = false;
};

[[nodiscard]] std::vector<profiler::MeasuredLayer> measure_layers(const Workload& workload,
                                                                  const LayerMeasurement& what);

// Sizes for which this number of passes stays within the limit; always includes the two smallest.
[[nodiscard]] std::vector<std::int64_t> sizes_within(std::vector<std::int64_t> sizes, double seconds_per_sample,
                                                     int passes, double limit_s);

// Halves `size` until two passes fit in the budget; stops at a few samples, which are always affordable.
[[nodiscard]] std::int64_t affordable_size(std::int64_t size, double seconds_per_sample, double budget_s);

[[nodiscard]] std::vector<LayerCost> measure_layer_bytes(const Workload& workload, std::int64_t micro_batch);

// Powers of two from micro_batch / 16 up, and `micro_batch` itself; at least four sizes. Also doubles of it up to
// min(`most`, 16 * micro_batch), for plans with fewer micro-batches, because kernels change with the size.
[[nodiscard]] std::vector<std::int64_t> sizes_to_profile(std::int64_t micro_batch, std::int64_t most = 0);

}  // namespace sluice::measure
