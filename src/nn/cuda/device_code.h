// device_code: SLUICE_DEVICE marks functions that run within GPU kernels: __device__ for nvcc (cmake/SluiceCuda.cmake),
// empty elsewhere, so that tests on CPUs run them. Headers that use it include neither torch nor the CUDA runtime.
#pragma once

#ifndef SLUICE_DEVICE
#define SLUICE_DEVICE
#endif
