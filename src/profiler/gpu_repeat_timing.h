// gpu_repeat_timing: what is made of the times of a layer's part on a GPU, where a call is repeated in a sequence
// between two events and nothing waits in between. The queue is kept busy before (`delay`) until all calls are
// enqueued, so the events show what the GPU takes for them, and the host's clock what it takes to enqueue them. Pure.
// Not here: running sequences (measure/layer_timer.h), the records of kernels (cupti/sequence_kernels.h).
// Units: nanoseconds of a sequence, seconds of a call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/clock.h"
#include "profiler/layer_profile.h"

namespace sluice::profiler {

struct Sequence {
  int calls = 1;
  Nanoseconds delay = 0;  // of the queue, before the first call

  bool operator==(const Sequence&) const = default;
};

// So many calls that the longer one of GPU and host has a millisecond to do, which events resolve to 0.1 %, but few
// enough for the queue (1024 launches), and a delay in which the host enqueues them. known: the shortest times so far.
[[nodiscard]] Sequence sequence_for(const CallTime& known);

// What was seen of a sequence.
struct SequenceTime {
  int calls = 1;
  Nanoseconds events = 0;              // between both
  Nanoseconds host = 0;                // until all calls were enqueued
  std::optional<Nanoseconds> kernels;  // sum of what ran; nothing where it is not known
};

[[nodiscard]] CallTime call_time(const SequenceTime& sequence);

// Each time by itself: what else the machine does only adds.
void keep_shortest(CallTime& best, const CallTime& other);

// Of calls after each other. Without calls: all known, and zero.
[[nodiscard]] CallTime sum_of(std::span<const CallTime> calls);

// Where the records of all parts are known, the time of a part is that of its kernels. By events, it is the longer one
// of GPU and host: both work at the same time. Launch-bound is a layer whose calls take the host longer than the GPU.
[[nodiscard]] LayerTimes layer_times(std::int64_t samples, const CallTime& forward, const CallTime& input_gradient,
                                     const CallTime& weight_gradient);

// The layers that are launch-bound at the largest size measured that is not above `samples` (else at the smallest), and
// what they take.
struct LaunchBound {
  int layers = 0;
  double host_s = 0;
  double device_s = 0;
};
[[nodiscard]] LaunchBound launch_bound_layers(const LayerProfile& profile, std::int64_t samples);

}  // namespace sluice::profiler
