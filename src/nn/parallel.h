// parallel: at::parallel_for that really is parallel. at::parallel_for is a header template which runs serially,
// without a word, in every file that is not compiled with -fopenmp; that flag would invalidate the shared precompiled
// header. So the loop lives in one source file that has the flag, and the others call it. Threads: as many as
// at::get_num_threads() of the calling thread; the workers inherit nothing else of ours.
#pragma once

#include <cstdint>
#include <functional>

namespace sluice::nn {

// A grain for work that costs a little a value: 64 KiB of float32.
constexpr std::int64_t kPieceValues = std::int64_t{1} << 14;

// body(first, last) on pieces of [begin, end) of at least `grain`; returns when all have run. Exceptions pass on.
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace sluice::nn
