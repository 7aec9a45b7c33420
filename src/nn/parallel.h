// parallel: at::parallel_for that is always parallel. ATen's is a template that silently runs serially in every file
// compiled without -fopenmp, and that flag would invalidate the precompiled header. Threads: at::get_num_threads() of
// the caller; workers inherit no thread-local state of Sluice.
#pragma once

#include <cstdint>
#include <functional>

namespace sluice::nn {

// Grain for work that is cheap per value: 64 KiB of float32.
constexpr std::int64_t kPieceValues = std::int64_t{1} << 14;

// Calls body(first, last) on pieces of [begin, end) of at least `grain`, waits for all, and passes exceptions on.
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace sluice::nn
