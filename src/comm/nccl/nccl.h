// nccl: the collective operations of GPUs; with_nccl.cpp where the build has CUDA, without_nccl.cpp elsewhere.
// NCCL takes one GPU a process: it refuses two processes on one GPU.
// Errors: ConfigError in a build without CUDA; what NCCL throws.
#pragma once

#include <chrono>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace sluice::comm::nccl {

// limit: longest wait for one operation.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                             int size, std::chrono::milliseconds limit);

}  // namespace sluice::comm::nccl
