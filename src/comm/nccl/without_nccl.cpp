#include "comm/nccl/nccl.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/error.h"

namespace sluice::comm::nccl {

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>&, int, int, device::Device,
                                               std::chrono::milliseconds) {
  throw ConfigError("this build of Sluice has no CUDA support and no NCCL; set replicas.backend = \"gloo\"");
}

}  // namespace sluice::comm::nccl
