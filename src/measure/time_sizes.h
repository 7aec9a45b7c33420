// time_sizes: times an action at several sizes, for fits (profiler/affine_fit.h). Internal to src/measure.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "profiler/affine_fit.h"

namespace sluice::measure {

// 4 KiB, eight times that, ..., `largest`, in bytes.
[[nodiscard]] std::vector<std::uint64_t> sizes_up_to(std::uint64_t largest);

// [size]: median of several calls of `action`, which returns seconds.
[[nodiscard]] std::vector<TimeAtSize> time_sizes(const std::vector<std::uint64_t>& sizes,
                                                 const std::function<double(std::uint64_t bytes)>& action);

// Runs `work` in its own thread, set up like a device thread, and waits. Returns its exception, or null.
[[nodiscard]] std::exception_ptr run_as_worker(int cpu_threads, const std::function<void()>& work);

}  // namespace sluice::measure
