// time_sizes: times of an action at several sizes, for lines through them. Internal to src/measure. Not here:
// the actions; the lines (profiler/affine_fit.h).
// Threads: run_as_worker() works in one of its own and waits.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "profiler/affine_fit.h"

namespace sluice::measure {

// 4 KiB, eight times that, ... and `largest`, in bytes.
[[nodiscard]] std::vector<std::uint64_t> sizes_up_to(std::uint64_t largest);

// The seconds that a call of `action` answers at each size, the median of several.
[[nodiscard]] std::vector<TimeAtSize> time_sizes(const std::vector<std::uint64_t>& sizes,
                                                 const std::function<double(std::uint64_t bytes)>& action);

// Runs `work` in a thread of its own, set up as a worker of the executor is. What it threw; null: nothing.
[[nodiscard]] std::exception_ptr run_as_worker(int cpu_threads, const std::function<void()>& work);

}  // namespace sluice::measure
