// Tensors of a GPU between processes: NCCL in a run of one, Gloo between two that share the GPU, for which threads
// stand in. Skips without a GPU, but for the run of one on a CPU.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "comm/processes.h"
#include "comm/ranks.h"

namespace sluice::comm {
namespace {

constexpr TimeLimits kMinute{std::chrono::milliseconds(60000), std::chrono::milliseconds(60000)};

// Sums over `size` ranks of tensors on `device`, in several sizes.
void expect_sums(int size, device::Device device, Collectives collectives) {
  const int port = test::free_port();
  const auto failures = test::run_ranks(size, [&](int rank) {
    Processes processes(test::world_of(rank, size, port), {}, kMinute);
    const auto communicator = processes.make_communicator("gradients", device, collectives);
    for (const std::int64_t numbers : {1, 1000, 1 << 20}) {
      const at::TensorOptions options = at::TensorOptions().dtype(at::kDouble).device(device::torch_device(device));
      const at::Tensor tensor = at::arange(numbers, options) * (rank + 1);
      communicator->all_reduce(tensor).wait();
      EXPECT_TRUE(at::equal(tensor, at::arange(numbers, options) * (size * (size + 1) / 2))) << numbers;
    }
    communicator->barrier();
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(CommunicatorOfOne, AddsUpToItself) { expect_sums(1, {}, Collectives::kGloo); }

TEST(CommunicatorOfOne, GpuTensorsAddUpByNccl) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  expect_sums(1, {device::DeviceKind::kCuda, 0}, Collectives::kNccl);
}

TEST(CommunicatorOfTwo, GpuTensorsAddUpByGloo) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  expect_sums(2, {device::DeviceKind::kCuda, 0}, Collectives::kGloo);
}

}  // namespace
}  // namespace sluice::comm
