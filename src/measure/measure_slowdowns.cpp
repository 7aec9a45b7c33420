#include "measure/measure_slowdowns.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <exception>
#include <functional>
#include <thread>

#include "core/check.h"
#include "core/clock.h"
#include "core/median.h"
#include "measure/layer_bench.h"
#include "measure/layer_timer.h"
#include "measure/time_sizes.h"
#include "pipeline/failure.h"

namespace sluice::measure {
namespace {

using Part = LayerBench::Part;

constexpr int kMostPasses = 40;

// [layer][pass]: seconds of forward and backward.
using PassTimes = std::vector<std::vector<double>>;

void add_pass(LayerBench& bench, std::int64_t samples, const std::function<Nanoseconds()>& clock, PassTimes& times) {
  for (std::vector<double>& layer : times) layer.push_back(0);
  bench.run(samples, /*defers_weights=*/false, [&](Part, std::size_t layer, const std::function<void()>& work) {
    const Nanoseconds begin = clock();
    work();
    times[layer].back() += to_s(clock() - begin);
  });
}

// The first device measures; the others keep running until it has finished.
class Devices {
 public:
  Devices(const Workload& workload, int count, std::int64_t samples, const SlowdownPasses& passes)
      : workload_(workload), samples_(samples), passes_(passes), clock_(clock_of(workload)), ready_(count) {}

  void run(int device) {
    Workload own = workload_;
    own.device.index = device;
    try {
      LayerBench bench(own);
      PassTimes times(bench.layers().size());
      add_pass(bench, samples_, clock_, times);
      ready_.arrive_and_wait();
      device == 0 ? measure(bench) : disturb(bench, times);
    } catch (...) {
      ends_ = true;
      ready_.arrive_and_drop();
      throw;
    }
  }

  [[nodiscard]] const PassTimes& times() const { return times_; }

 private:
  void measure(LayerBench& bench) {
    times_.resize(bench.layers().size());
    const Nanoseconds begin = now_ns();
    for (int round = 0; round < kMostPasses && !ends_; ++round) {
      if (round >= passes_.least && to_s(now_ns() - begin) > passes_.seconds) break;
      add_pass(bench, samples_, clock_, times_);
    }
    ends_ = true;
  }
  void disturb(LayerBench& bench, PassTimes& times) const {
    while (!ends_) add_pass(bench, samples_, clock_, times);
  }

  const Workload& workload_;
  std::int64_t samples_;
  SlowdownPasses passes_;
  std::function<Nanoseconds()> clock_;
  std::barrier<> ready_;
  std::atomic<bool> ends_ = false;
  PassTimes times_;
};

}  // namespace

std::vector<double> measure_slowdowns(const Workload& workload, int devices, std::int64_t samples,
                                      const std::vector<profiler::MeasuredLayer>& alone, const SlowdownPasses& passes) {
  check(devices >= 2, "at least two devices");
  Devices running(workload, devices, samples, passes);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(devices));
  {
    std::vector<std::jthread> threads;
    for (int device = 0; device < devices; ++device)
      threads.emplace_back([&, device] {
        failures[static_cast<std::size_t>(device)] =
            run_as_worker(workload.threads, [&running, device] { running.run(device); });
      });
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) throw pipeline::describe_failure(failure, "measuring how devices slow each other down");
  std::vector<double> slowdowns;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const double seconds = alone[i].cost.seconds(static_cast<double>(samples));
    slowdowns.push_back(seconds > 0 ? std::max(1.0, median(running.times()[i]) / seconds) : 1.0);
  }
  return slowdowns;
}

}  // namespace sluice::measure
