#include "profiler/gpu_repeat_timing.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice::profiler {
namespace {

double device_seconds(const CallTime& call) { return call.kernels_s.value_or(call.events_s); }

}  // namespace

Sequence sequence_for(const CallTime& known) {
  constexpr double kLeastSeconds = 1e-3;
  constexpr double kMostCalls = 200;
  constexpr double kMostDelay = 20e-3;
  const double longer = std::max(known.events_s, known.host_s);
  const double calls = longer > 0 ? std::clamp(std::ceil(kLeastSeconds / longer), 1.0, kMostCalls) : kMostCalls;
  // 50 % more, because the host's speed varies.
  const double delay = std::min(1.5 * calls * known.host_s, kMostDelay);
  return {.calls = static_cast<int>(calls), .delay = from_s(delay)};
}

CallTime call_time(const SequenceTime& sequence) {
  const double calls = std::max(sequence.calls, 1);
  CallTime call{.events_s = to_s(sequence.events) / calls, .host_s = to_s(sequence.host) / calls};
  if (sequence.kernels) call.kernels_s = to_s(*sequence.kernels) / calls;
  return call;
}

void keep_shortest(CallTime& best, const CallTime& other) {
  best.events_s = std::min(best.events_s, other.events_s);
  best.host_s = std::min(best.host_s, other.host_s);
  if (!best.kernels_s || (other.kernels_s && *other.kernels_s < *best.kernels_s)) best.kernels_s = other.kernels_s;
}

CallTime sum_of(std::span<const CallTime> calls) {
  CallTime sum{.kernels_s = 0.0};
  for (const CallTime& call : calls) {
    sum.events_s += call.events_s;
    sum.host_s += call.host_s;
    if (sum.kernels_s && call.kernels_s)
      *sum.kernels_s += *call.kernels_s;
    else
      sum.kernels_s.reset();
  }
  return sum;
}

LayerTimes layer_times(std::int64_t samples, const CallTime& forward, const CallTime& input_gradient,
                       const CallTime& weight_gradient) {
  const CallTime all = sum_of(std::array{forward, input_gradient, weight_gradient});
  const auto seconds = [&all](const CallTime& call) {
    return all.kernels_s ? *call.kernels_s : std::max(call.events_s, call.host_s);
  };
  return {.samples = samples,
          .forward_s = seconds(forward),
          .input_gradient_s = seconds(input_gradient),
          .weight_gradient_s = seconds(weight_gradient),
          .backward_s = seconds(input_gradient) + seconds(weight_gradient),
          .timed_by = all.kernels_s ? kTimedByCupti : kTimedByEvents,
          .gpu = GpuTimes{.forward = forward,
                          .input_gradient = input_gradient,
                          .weight_gradient = weight_gradient,
                          .is_launch_bound = all.host_s > device_seconds(all)}};
}

LaunchBound launch_bound_layers(const LayerProfile& profile, std::int64_t samples) {
  LaunchBound bound;
  for (const MeasuredLayer& layer : profile.layers) {
    auto at = std::ranges::upper_bound(layer.times, samples, {}, &LayerTimes::samples);
    if (at != layer.times.begin()) --at;
    if (at == layer.times.end() || !at->gpu || !at->gpu->is_launch_bound) continue;
    const CallTime all = sum_of(std::array{at->gpu->forward, at->gpu->input_gradient, at->gpu->weight_gradient});
    ++bound.layers;
    bound.host_s += all.host_s;
    bound.device_s += device_seconds(all);
  }
  return bound;
}

}  // namespace sluice::profiler
