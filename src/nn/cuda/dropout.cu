#include <algorithm>

#include "nn/cuda/grid.cuh"
#include "nn/cuda/row_kernels.h"

namespace sluice::nn::gpu {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocksOfThread = 4;  // Philox blocks per thread; the sample's key is drawn once for all of them

template <typename T, int kRun>
__global__ void dropout_kernel(DropoutArguments arguments, std::int64_t philox_blocks) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t sample = blockIdx.y; sample < arguments.samples; sample += gridDim.y) {
    const std::uint64_t key = sample_key(arguments.mask, arguments.sample_ids[sample]);
    for (std::int64_t index = first; index < philox_blocks; index += step) {
      dropout_block<T, kRun>(arguments, key, sample, index);
    }
  }
}

}  // namespace

void launch_dropout(const DropoutArguments& arguments, Number type, cudaStream_t stream) {
  const std::int64_t philox_blocks = blocks_for(arguments.count, kWordsInBlock);
  const dim3 blocks(blocks_along_x(blocks_for(philox_blocks, kThreads * kBlocksOfThread)),
                    static_cast<unsigned int>(std::min(arguments.samples, kMostBlocksAlongY)));
  with_number(type, [&](auto number) {
    using T = decltype(number);
    with_run(arguments.count, aligned<T>(arguments.x) && aligned<T>(arguments.y), [&](auto run) {
      start(dropout_kernel<T, decltype(run)::value>, blocks, kThreads, stream, arguments, philox_blocks);
    });
  });
}

}  // namespace sluice::nn::gpu
