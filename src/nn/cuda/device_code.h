// device_code: SLUICE_DEVICE marks functions that run within GPU kernels. CMake defines it as __device__ for nvcc
// (cmake/SluiceCuda.cmake). Elsewhere it is empty, so that tests on CPUs can run the same functions. Headers that use
// it include neither torch nor the CUDA runtime.
#pragma once

#ifndef SLUICE_DEVICE
#define SLUICE_DEVICE
#endif
