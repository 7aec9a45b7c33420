// start: the only function that starts kernels and detects a failed start. A test replaces this file by one that runs
// kernels on the CPU (tests/nn/emulated_cuda).
#pragma once

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>

namespace sluice::nn::gpu {

template <typename... Parameters, typename... Arguments>
void start(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
           const Arguments&... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace sluice::nn::gpu
