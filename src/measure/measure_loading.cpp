#include "measure/measure_loading.h"

#include <vector>

#include "core/clock.h"
#include "core/median.h"
#include "core/thread_time.h"

namespace sluice::measure {

LoadCost measure_loading(const data::Dataset& set, data::LoaderOptions options) {
  constexpr int kMostBatches = 20;
  constexpr double kSeconds = 1;
  options.threads = 0;
  data::Loader loader(set, options);
  (void)loader.next();
  std::vector<double> of_clock, of_cpu;
  const Nanoseconds start = now_ns();
  while (of_clock.size() < kMostBatches && (of_clock.empty() || to_s(now_ns() - start) < kSeconds)) {
    const Nanoseconds begin = now_ns(), cpu_begin = thread_time_ns();
    const auto batch = loader.next();
    const auto samples = static_cast<double>(batch->samples());
    of_cpu.push_back(to_s(thread_time_ns() - cpu_begin) / samples);
    of_clock.push_back(to_s(now_ns() - begin) / samples);
  }
  return {.sample_s = median(of_clock), .cpu_s = median(of_cpu)};
}

}  // namespace sluice::measure
