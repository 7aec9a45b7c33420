#include "measure/measure_update.h"

#include <barrier>
#include <exception>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include "core/clock.h"
#include "core/median.h"
#include "device/stream.h"
#include "measure/cold_caches.h"
#include "measure/time_sizes.h"
#include "optim/optimizer.h"
#include "pipeline/failure.h"
#include "profiler/affine_fit.h"

namespace sluice::measure {
namespace {

class Update {
 public:
  Update(const Workload& workload, std::uint64_t bytes)
      : options_(at::TensorOptions(workload.model.dtype).device(device::torch_device(workload.device))),
        gradients_(at::zeros({static_cast<std::int64_t>(bytes / c10::elementSize(workload.model.dtype))}, options_)),
        optimizer_(workload.optimizer, at::zeros_like(gradients_), gradients_) {}

  void run() {
    optimizer_.begin_step();
    optimizer_.update(/*lr=*/0.01, /*divisor=*/1, {});
    gradients_.zero_();  // the next step's first backward writes here; layer times exclude that
  }

 private:
  at::TensorOptions options_;
  at::Tensor gradients_;
  optim::Optimizer optimizer_;
};

constexpr int kWarmUp = 2, kRepeats = 9;

// Times of every update except the first ones, which touch new memory. start: all devices begin together.
std::vector<double> time_updates(const Workload& workload, std::uint64_t bytes, std::barrier<>& start) {
  const auto stream = device::Stream::make(workload.device);
  const device::StreamGuard guard(stream);
  Update update(workload, bytes);
  ColdCaches caches(at::TensorOptions(device::torch_device(workload.device)));
  std::vector<double> times;
  for (int repeat = 0; repeat < kWarmUp + kRepeats; ++repeat) {
    caches.evict();
    stream.synchronize();
    start.arrive_and_wait();
    const Nanoseconds begin = now_ns();
    update.run();
    stream.synchronize();
    if (repeat >= kWarmUp) times.push_back(to_s(now_ns() - begin));
  }
  return times;
}

double time_update(const Workload& workload, std::uint64_t bytes, int devices) {
  std::barrier<> start(devices);
  std::vector<std::vector<double>> times(static_cast<std::size_t>(devices));
  std::vector<std::exception_ptr> failures(times.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t device = 0; device < times.size(); ++device)
      threads.emplace_back([&, device] {
        failures[device] = run_as_worker(workload.threads, [&] {
          try {
            times[device] = time_updates(workload, bytes, start);
          } catch (...) {
            start.arrive_and_drop();
            throw;
          }
        });
      });
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) throw pipeline::describe_failure(failure, "measuring the optimizer");
  return median(times.front());
}

}  // namespace

AffineCost measure_update(const Workload& workload, std::uint64_t largest_bytes, int devices) {
  std::vector<TimeAtSize> points;
  for (const std::uint64_t bytes : sizes_up_to(largest_bytes))
    points.push_back({static_cast<double>(bytes), time_update(workload, bytes, devices)});
  return profiler::fit_affine(points);
}

}  // namespace sluice::measure
