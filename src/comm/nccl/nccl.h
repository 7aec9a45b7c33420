// nccl: collective operations of GPUs. Errors: ConfigError in a build without CUDA; the exceptions of NCCL.
#pragma once

#include <chrono>

#include <c10/util/intrusive_ptr.h>

#include "device/device.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace sluice::comm::nccl {

// Makes a backend that is connected and bound to `device`, so that it need not guess the GPU of an operation without
// tensors. Its kernels have high priority, because all processes wait for them. Every process makes its backends in the
// same order. limit: of one operation.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                             int size, device::Device device,
                                                             std::chrono::milliseconds limit);

}  // namespace sluice::comm::nccl
