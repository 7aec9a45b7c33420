// Stands in for CUDA's header of this name where kernels run on the CPU (nn/cuda/start.cuh beside it).
#pragma once

using cudaStream_t = void*;
