// nccl: the collective operations of GPUs; with_nccl.cpp where the build has CUDA, without_nccl.cpp elsewhere.
// NCCL takes one GPU a process: it refuses two processes on one GPU.
// Errors: ConfigError in a build without CUDA; what NCCL throws.
#pragma once

#include <chrono>

#include <c10/util/intrusive_ptr.h>

#include "device/device.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace sluice::comm::nccl {

// Bound to `device` and connected: it never has to guess which GPU an operation without tensors is for, and with
// NCCL_RUNTIME_CONNECT=0, which the program sets, no operation of a step connects first. Its kernels go before others
// that wait for the GPU, because all processes wait for them. Every process makes its backends in the same order.
// limit: longest wait for one operation.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                             int size, device::Device device,
                                                             std::chrono::milliseconds limit);

}  // namespace sluice::comm::nccl
