// layer_timer: the times of each layer's parts, the shortest of any number of passes through the model: on a CPU device
// by the clock around each part, on a GPU by sequences of repeated calls (profiler/gpu_repeat_timing.h), between whose
// calls nothing waits. In a backward part the host time includes the hand-over to autograd's thread, which a stage pays
// once for all layers. Only src/measure and its test include this. Not here: which sizes, how often (measure_layers.h).
// Threads: one. Errors: those of the layers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "measure/layer_bench.h"
#include "profiler/cupti/session.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

struct FirstUse {
  double forward_s = 0;
  double backward_s = 0;
};

class LayerTimer {
 public:
  virtual ~LayerTimer() = default;
  // So that what is done the first time at a size is done. Out of memory shows here.
  virtual void warm_up(std::int64_t samples) = 0;
  [[nodiscard]] virtual int warm_up_passes() const = 0;
  virtual void pass(std::int64_t samples) = 0;
  // What the first micro-batch of a step takes more than those after it, of each layer: 0 where nothing is kept between
  // micro-batches of this size, or that is not told. Then the bench keeps what it keeps of this size alone. Requires:
  // passes at this size.
  [[nodiscard]] virtual std::vector<FirstUse> first_use(std::int64_t samples) = 0;
  // Of each layer. Requires: a pass at this size.
  [[nodiscard]] virtual std::vector<profiler::LayerTimes> times(std::int64_t samples) = 0;
};

// The clock for timing layers: thread processor time if the CPU device has one thread, else wall time.
[[nodiscard]] std::function<Nanoseconds()> clock_of(const Workload& workload);
// Whether that is processor time, in which waiting for a core does not count.
[[nodiscard]] bool counts_processor_time(const Workload& workload);

// Both require that the bench outlives the timer.
[[nodiscard]] std::unique_ptr<LayerTimer> make_clock_timer(LayerBench& bench, std::function<Nanoseconds()> clock);

// session: whose records tell the times of kernels; null: none do. On a CPU device, whose work is done when a call
// returns, events and host tell the same.
[[nodiscard]] std::unique_ptr<LayerTimer> make_repeat_timer(LayerBench& bench, std::unique_ptr<cupti::Session> session);

// Of each layer at the needed size; where it transforms weights at others alone, at the smallest of these: kernels
// change with the size, what they make of the weights does not. Requires: passes at all sizes, ascending.
[[nodiscard]] std::vector<FirstUse> first_uses(LayerTimer& timer, const LayerBench& bench,
                                               std::vector<std::int64_t> sizes, std::int64_t needed);

}  // namespace sluice::measure
