#include "comm/nccl/nccl.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace sluice::comm::nccl {

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               device::Device device, std::chrono::milliseconds limit) {
  const auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = limit;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  backend->setBoundDeviceId(device::torch_device(device));
  backend->eagerConnectSingleDevice(device::torch_device(device));
  return backend;
}

}  // namespace sluice::comm::nccl
