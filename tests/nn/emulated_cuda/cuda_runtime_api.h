// Replaces CUDA's header when kernels run on the CPU (nn/cuda/start.cuh beside it).
#pragma once

using cudaStream_t = void*;
