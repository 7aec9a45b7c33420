#include "measure/time_sizes.h"

#include <algorithm>
#include <thread>

#include "core/median.h"
#include "device/cpu_threads.h"

namespace sluice::measure {

std::vector<std::uint64_t> sizes_up_to(std::uint64_t largest) {
  constexpr std::uint64_t kSmallestBytes = 4096;
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = kSmallestBytes; size < largest; size *= 8) sizes.push_back(size);
  sizes.push_back(std::max(largest, kSmallestBytes));
  return sizes;
}

std::vector<TimeAtSize> time_sizes(const std::vector<std::uint64_t>& sizes,
                                   const std::function<double(std::uint64_t bytes)>& action) {
  constexpr int kWarmUp = 2, kRepeats = 9;
  std::vector<TimeAtSize> points;
  for (const std::uint64_t bytes : sizes) {
    std::vector<double> times;
    for (int repeat = 0; repeat < kWarmUp + kRepeats; ++repeat) {
      const double time = action(bytes);
      if (repeat >= kWarmUp) times.push_back(time);
    }
    points.push_back({static_cast<double>(bytes), median(std::move(times))});
  }
  return points;
}

std::exception_ptr run_as_worker(int cpu_threads, const std::function<void()>& work) {
  std::exception_ptr failure;
  std::jthread([&] {
    try {
      device::use_cpu_threads(cpu_threads);
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  return failure;
}

}  // namespace sluice::measure
