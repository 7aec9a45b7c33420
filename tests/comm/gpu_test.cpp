// Tensors of a GPU between processes: NCCL in a world of one, which a run of one process never asks for, and Gloo
// between two that share the GPU, for which threads stand in; the same on a CPU. The rest skips without a GPU.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/nccl/nccl.h"
#include "comm/processes.h"
#include "comm/ranks.h"

namespace sluice::comm {
namespace {

constexpr std::chrono::milliseconds kMinute(60000);

void expect_sums(const Communicator& communicator, device::Device device) {
  const int rank = communicator.rank(), size = communicator.size();
  for (const std::int64_t numbers : {1, 1000, 1 << 20}) {
    const at::TensorOptions options = at::TensorOptions().dtype(at::kDouble).device(device::torch_device(device));
    const at::Tensor tensor = at::arange(numbers, options) * (rank + 1);
    communicator.all_reduce(tensor).wait();
    EXPECT_TRUE(at::equal(tensor, at::arange(numbers, options) * (size * (size + 1) / 2))) << numbers;
  }
  communicator.barrier();
}

void expect_sums_of_two(device::Device device) {
  const int port = test::free_port();
  const auto failures = test::run_ranks(2, [&](int rank) {
    Processes processes(test::world_of(rank, 2, port), {}, {kMinute, kMinute});
    expect_sums(*processes.make_communicator("gradients", device, Collectives::kGloo), device);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(CommunicatorOfOne, GpuTensorsAddUpByNccl) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  const device::Device gpu{device::DeviceKind::kCuda, 0};
  const auto backend = nccl::make_backend(c10::make_intrusive<c10d::HashStore>(), /*rank=*/0, /*size=*/1, gpu, kMinute);
  expect_sums(Communicator("gradients", gpu, backend, kMinute), gpu);
}

TEST(CommunicatorOfTwo, GpuTensorsAddUpByGloo) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  expect_sums_of_two({device::DeviceKind::kCuda, 0});
}

TEST(CommunicatorOfTwo, CpuTensorsAddUpAlike) { expect_sums_of_two({}); }

}  // namespace
}  // namespace sluice::comm
