// gpu_repeat_timing: evaluates times of a layer's part on a GPU, from calls repeated between two events. A delay keeps
// the queue busy until all calls are enqueued, so events show GPU time and the host's clock shows enqueue time. Pure.
// Units: nanoseconds per sequence, seconds per call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/clock.h"
#include "profiler/layer_profile.h"

namespace sluice::profiler {

struct Sequence {
  int calls = 1;
  Nanoseconds delay = 0;

  bool operator==(const Sequence&) const = default;
};

// Enough calls for a millisecond of GPU and host, which events resolve to 0.1 %, within the queue (1024 launches).
[[nodiscard]] Sequence sequence_for(const CallTime& known);

struct SequenceTime {
  int calls = 1;
  Nanoseconds events = 0;
  Nanoseconds host = 0;                // until all calls were enqueued
  std::optional<Nanoseconds> kernels;  // sum of kernel times; empty if unknown
};

[[nodiscard]] CallTime call_time(const SequenceTime& sequence);

// Keeps the minimum of each time, because other load only adds time.
void keep_shortest(CallTime& best, const CallTime& other);

// Sums sequential calls. Without calls: all times known and zero.
[[nodiscard]] CallTime sum_of(std::span<const CallTime> calls);

// Kernel times if they are known for all parts; else the longer of GPU and host times, which overlap.
[[nodiscard]] LayerTimes layer_times(std::int64_t samples, const CallTime& forward, const CallTime& input_gradient,
                                     const CallTime& weight_gradient);

// Launch-bound layers and their times at the largest measured size up to `samples`, or else at the smallest.
struct LaunchBound {
  int layers = 0;
  double host_s = 0;
  double device_s = 0;
};
[[nodiscard]] LaunchBound launch_bound_layers(const LayerProfile& profile, std::int64_t samples);

}  // namespace sluice::profiler
