#include "nn/parallel.h"

#include <ATen/Parallel.h>

#ifndef _OPENMP
#error "compile this file with -fopenmp (src/nn/CMakeLists.txt): otherwise every kernel would run on one thread"
#endif

namespace sluice::nn {

void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  // A lambda in this file, so that no file without OpenMP can instantiate the same template.
  at::parallel_for(begin, end, grain, [&body](std::int64_t first, std::int64_t last) { body(first, last); });
}

}  // namespace sluice::nn
