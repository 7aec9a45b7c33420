// layer_timer: the times of each layer's parts, as the shortest of any number of passes. On a GPU it repeats calls
// without waiting in between (profiler/gpu_repeat_timing.h). The host time of a backward part includes the hand-over to
// autograd's thread, which a stage pays once for all layers. Internal to src/measure. Threads: one.
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
  virtual void warm_up(std::int64_t samples) = 0;
  [[nodiscard]] virtual int warm_up_passes() const = 0;
  virtual void pass(std::int64_t samples) = 0;
  // [layer]: extra time of a step's first micro-batch; 0 if nothing is kept between micro-batches or this is unknown.
  // Requires: passes at this size.
  [[nodiscard]] virtual std::vector<FirstUse> first_use(std::int64_t samples) = 0;
  [[nodiscard]] virtual std::vector<profiler::LayerTimes> times(std::int64_t samples) = 0;
};

// The clock for timing layers: the thread's CPU time if the CPU device has one thread, else wall time.
[[nodiscard]] std::function<Nanoseconds()> clock_of(const Workload& workload);
[[nodiscard]] bool counts_processor_time(const Workload& workload);

// For both timers the bench must outlive the timer.
[[nodiscard]] std::unique_ptr<LayerTimer> make_clock_timer(LayerBench& bench, std::function<Nanoseconds()> clock);

// session: records the times of kernels; null: no records. On a CPU device, event and host times are equal.
[[nodiscard]] std::unique_ptr<LayerTimer> make_repeat_timer(LayerBench& bench, std::unique_ptr<cupti::Session> session);

// [layer], at the needed size, or at the smallest size at which the layer transforms weights. Requires: passes at all
// sizes, ascending.
[[nodiscard]] std::vector<FirstUse> first_uses(LayerTimer& timer, const LayerBench& bench,
                                               std::vector<std::int64_t> sizes, std::int64_t needed);

}  // namespace sluice::measure
