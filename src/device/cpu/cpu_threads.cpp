#include "device/cpu_threads.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <climits>

#include <ATen/Parallel.h>

namespace sluice::device {

void use_cpu_threads(int threads) {
  // Both calls make LibTorch read its lazy default now, so that it does not overwrite our value later.
  at::parallel_for(0, 1, 1, [](std::int64_t, std::int64_t) {});
  static_cast<void>(at::get_num_threads());
  at::set_num_threads(std::max(threads, 1));
}

int available_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::max(CPU_COUNT(&cores), 1);
}

int threads_per_device(int configured, int devices, double cores) {
  return configured > 0 ? configured : std::max(static_cast<int>(cores) / std::max(devices, 1), 1);
}

void tune_malloc() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace sluice::device
