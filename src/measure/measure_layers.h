// measure_layers: what each layer of the configured model costs, alone on the first device of this process with the
// configured threads and precision: for pipeline.partition = "auto" and for `sluice profile`.
// A measurement is a forward pass through all layers and a backward pass back, as a stage does it, with each layer's
// part timed by itself: forward, input gradient, weight gradient (nn/weight_queue.h). Passes of different sizes take
// turns, and the shortest time of each counts: what else the machine does only adds. On a CPU device of one thread it
// is that thread's processor time. On a GPU each part is a sequence of repeated calls between events (layer_timer.h).
// The loss is part of the last layer. Not here: optimizer, copies between stages
// (measure_links.h); what to make of the costs (tune/). Threads: works in one of its own; the caller waits. Errors:
// those of describe_failure(), "measuring the layers: ...".
#pragma once

#include <cstdint>
#include <vector>

#include "measure/workload.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

struct LayerMeasurement {
  std::vector<std::int64_t> sizes;  // micro-batches, in samples, ascending
  int least_rounds = 3;             // after a warm-up; in each round every size is run
  int most_rounds = 3;
  double budget_s = 0;  // further rounds are begun until the rounds have taken so long
  // Then the budget is of all measuring, and a size (the only one) of which passes would take longer is halved until
  // they would not.
  bool fits_budget = false;
  // Sizes above this one are left out where the device has no memory for them, with a warning, or `least_rounds` of
  // them would take longer than the budget.
  std::int64_t needed_size = 0;
  // Seconds of all measuring; 0: as long as it takes. Sizes that would take longer are left out, the largest first, the
  // needed one too; the two smallest are always measured. One round is enough then.
  double limit_s = 0;
  bool with_memory = true;  // bytes of activations too
  // They are measured at all sizes, and where this is more, at doubles of the largest one up to it, and at it.
  std::int64_t most_samples = 0;
  bool with_kernels = false;  // on a GPU, times of its kernels by CUPTI where it can be had, else of events
};

[[nodiscard]] std::vector<profiler::MeasuredLayer> measure_layers(const Workload& workload,
                                                                  const LayerMeasurement& what);

// Sizes, of which so many passes at so many seconds a sample take no longer than the limit; the two smallest always.
[[nodiscard]] std::vector<std::int64_t> sizes_within(std::vector<std::int64_t> sizes, double seconds_per_sample,
                                                     int passes, double limit_s);

// `size`, halved until two passes of it, at so many seconds a sample, take no longer than the budget; a few samples are
// always affordable.
[[nodiscard]] std::int64_t affordable_size(std::int64_t size, double seconds_per_sample, double budget_s);

// The same without times.
[[nodiscard]] std::vector<LayerCost> measure_layer_bytes(const Workload& workload, std::int64_t micro_batch);

// Powers of two from a sixteenth of `micro_batch` up, and `micro_batch` itself; at least four sizes, where it is small
// some above it; and doubles of it up to `most`, but no more than sixteen times: a plan with fewer micro-batches has
// such ones, and kernels change with the size. Far smaller and larger ones no plan near it would use.
[[nodiscard]] std::vector<std::int64_t> sizes_to_profile(std::int64_t micro_batch, std::int64_t most = 0);

}  // namespace sluice::measure
