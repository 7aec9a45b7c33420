// start: replaces src/nn/cuda/start.cuh. Runs a kernel on the CPU, block after block, with a thread for each thread of
// a block. Barriers and shuffles synchronise as on a GPU, so TSan finds races in shared memory. Not emulated: lanes in
// step, and faults from misaligned memory. Requires: no lane returns before a shuffle of its warp, and a warp that
// shuffles has 32 lanes.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other

struct dim3 {
  unsigned int x = 1, y = 1;
  dim3(unsigned int wide = 1, unsigned int high = 1) : x(wide), y(high) {}  // NOLINT: as CUDA's
};
inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace sluice::nn::gpu {

constexpr unsigned int kLanesOfWarp = 32;

// Shuffles alternate between two slots of each lane. A slot is written again only after the barrier of the shuffle in
// between, when all lanes have read it.
struct EmulatedWarp {
  std::barrier<> barrier{kLanesOfWarp};
  float values[2][kLanesOfWarp];
};
struct EmulatedBlock {
  explicit EmulatedBlock(unsigned int threads) : barrier(threads) {
    for (unsigned int i = 0; i < threads; i += kLanesOfWarp) warps.push_back(std::make_unique<EmulatedWarp>());
  }
  std::barrier<> barrier;
  std::vector<std::unique_ptr<EmulatedWarp>> warps;
};
inline thread_local EmulatedBlock* block_of_thread = nullptr;
inline thread_local unsigned int shuffles_of_thread = 0;

inline unsigned int number_in_block() { return threadIdx.y * blockDim.x + threadIdx.x; }

template <typename... Parameters, typename... Arguments>
void start(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t, const Arguments&... arguments) {
  for (unsigned int number = 0; number < blocks.x * blocks.y; ++number) {
    EmulatedBlock block(threads.x * threads.y);
    std::vector<std::jthread> running;
    for (unsigned int i = 0; i < threads.x * threads.y; ++i) {
      running.emplace_back([&, i] {
        block_of_thread = &block;
        gridDim = blocks;
        blockDim = threads;
        blockIdx = {number % blocks.x, number / blocks.x};
        threadIdx = {i % threads.x, i / threads.x};
        kernel(arguments...);
        block.barrier.arrive_and_drop();
      });
    }
  }
}

}  // namespace sluice::nn::gpu

// In the global namespace, as CUDA has them.
inline std::int64_t min(std::int64_t a, std::int64_t b) { return std::min(a, b); }

inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  return std::atomic_ref<unsigned long long>(*to).fetch_add(value);
}

inline void __syncthreads() { sluice::nn::gpu::block_of_thread->barrier.arrive_and_wait(); }

inline float __shfl_xor_sync(unsigned int, float value, int offset) {
  using namespace sluice::nn::gpu;
  EmulatedWarp& warp = *block_of_thread->warps[number_in_block() / kLanesOfWarp];
  const unsigned int lane = number_in_block() % kLanesOfWarp;
  float(&values)[kLanesOfWarp] = warp.values[shuffles_of_thread++ % 2];
  values[lane] = value;
  warp.barrier.arrive_and_wait();
  return values[lane ^ static_cast<unsigned int>(offset)];
}
