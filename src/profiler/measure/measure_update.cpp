#include "profiler/measure/measure_update.h"

#include <exception>

#include <ATen/ATen.h>

#include "core/clock.h"
#include "device/stream.h"
#include "optim/optimizer.h"
#include "pipeline/failure.h"
#include "profiler/affine_fit.h"
#include "profiler/measure/time_sizes.h"

namespace sluice::measure {
namespace {

constexpr std::int64_t kOtherBytes = std::int64_t{64} << 20;  // more than the caches of a core or a GPU hold

// Of the second update: the first one meets memory that was never touched. `others` is what a step does in between: its
// activations push weights and optimizer state out of the caches.
double time_update(const Workload& workload, const device::Stream& stream, const at::Tensor& others,
                   std::uint64_t bytes) {
  const auto elements = static_cast<std::int64_t>(bytes / c10::elementSize(workload.model.dtype));
  const auto options = at::TensorOptions(workload.model.dtype).device(device::torch_device(workload.device));
  const at::Tensor gradients = at::zeros({elements}, options);
  optim::Optimizer optimizer(workload.optimizer, at::zeros({elements}, options), gradients);
  const auto update = [&] {
    optimizer.begin_step();
    optimizer.update(/*lr=*/0.01, /*divisor=*/1, {});
    gradients.zero_();
    stream.synchronize();
  };
  update();
  others.add_(1);
  stream.synchronize();
  const Nanoseconds begin = now_ns();
  update();
  return to_s(now_ns() - begin);
}

}  // namespace

AffineCost measure_update(const Workload& workload, std::uint64_t largest_bytes) {
  std::vector<TimeAtSize> points;
  const std::exception_ptr failure = run_as_worker(workload.threads, [&] {
    const auto stream = device::Stream::make(workload.device);
    const device::StreamGuard guard(stream);
    const at::Tensor others =
        at::zeros({kOtherBytes}, at::TensorOptions(at::kByte).device(device::torch_device(workload.device)));
    points = time_sizes(sizes_up_to(largest_bytes),
                        [&](std::uint64_t bytes) { return time_update(workload, stream, others, bytes); });
  });
  if (failure) throw pipeline::describe_failure(failure, "measuring the optimizer");
  return profiler::fit_affine(points);
}

}  // namespace sluice::measure
