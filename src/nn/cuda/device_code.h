// device_code: SLUICE_DEVICE marks functions that run within GPU kernels. CMake makes it __device__ for nvcc
// (cmake/SluiceCuda.cmake); elsewhere it is nothing, so that tests on CPUs run the same functions and show their
// arithmetic without a GPU. Such headers know neither torch nor the CUDA runtime.
#pragma once

#ifndef SLUICE_DEVICE
#define SLUICE_DEVICE
#endif
