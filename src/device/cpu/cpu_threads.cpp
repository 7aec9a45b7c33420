#include "device/cpu_threads.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <climits>

#include <ATen/Parallel.h>

namespace sluice::device {

void use_cpu_threads(int threads) {
  // The first parallel work of a thread takes the number that any thread has set last, once in LibTorch's libraries and
  // once in this program. Both calls do this now, so that it does not replace our number later.
  at::internal::lazy_init_num_threads();
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
