// The sum over local replicas, in turn and in pairs, against float64 and closed forms; replicas report side by side.
#include "ddp/local_sum.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace sluice::ddp {
namespace {

constexpr int kParams = 7;
constexpr int kSize = 33;
using Order = LocalSum::Order;

comm::SyncedStage stage_of(int replicas, at::ScalarType type, const std::vector<device::Device>& devices) {
  comm::SyncedStage synced{.stage = StageId{0}};
  for (int p = 0; p < kParams; ++p) synced.extents.push_back({ParamId{p}, p * kSize, (p + 1) * kSize});
  for (int r = 0; r < replicas; ++r) {
    synced.devices.push_back(devices.empty() ? device::Device{device::DeviceKind::kCpu, r} : devices[r]);
    synced.gradients.push_back(
        at::zeros({kParams * kSize}, at::TensorOptions(type).device(device::torch_device(synced.devices[r]))));
  }
  return synced;
}

// Over many magnitudes, so that another order gives other bits.
at::Tensor gradient_of(int replica, at::ScalarType type) {
  auto generator = at::detail::createCPUGenerator(100 + replica);
  const at::Tensor values = at::randn({kParams * kSize}, generator, at::kDouble);
  return (values * at::pow(10, at::randn({kParams * kSize}, generator, at::kDouble) * 3)).to(type);
}

void run_step(LocalSum& sum, int replicas) {
  sum.begin_step();
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < replicas; ++r) {
      threads.emplace_back([&sum, r] {
        for (int p = kParams; p-- > 1;) sum.on_grad_ready(ReplicaId{r}, ParamId{p});
        sum.on_backward_done(ReplicaId{r}, StageId{0});
      });
    }
  }
  sum.finish_step();
}

at::Tensor tree_of(int first, int replicas, int width) {
  if (width == 1) return gradient_of(first, at::kFloat);
  const at::Tensor left = tree_of(first, replicas, width / 2);
  return first + width / 2 < replicas ? left + tree_of(first + width / 2, replicas, width / 2) : left;
}

void expect_sums(int replicas, Order order, const std::vector<device::Device>& devices) {
  const comm::SyncedStage synced = stage_of(replicas, at::kFloat, devices);
  LocalSum sum({synced}, {.bucket_bytes = 2 * kSize * sizeof(float), .order = order});
  at::Tensor exact = at::zeros({kParams * kSize}, at::kDouble), magnitudes = exact.clone();
  for (int r = 0; r < replicas; ++r) {
    exact += gradient_of(r, at::kFloat).to(at::kDouble);
    magnitudes += gradient_of(r, at::kFloat).to(at::kDouble).abs();
  }
  for (int step = 0; step < 5; ++step) {
    for (int r = 0; r < replicas; ++r) synced.gradients[r].copy_(gradient_of(r, at::kFloat));
    run_step(sum, replicas);
    const at::Tensor summed = synced.gradients[0].cpu();
    const int rounds = order == Order::kInPairs ? 5 : replicas;
    EXPECT_TRUE(((summed.to(at::kDouble) - exact).abs() <= magnitudes * (1.01 * rounds * 0x1p-24)).all().item<bool>());
    if (order == Order::kInPairs) {
      EXPECT_TRUE(at::equal(summed, tree_of(0, replicas, 32))) << replicas << " step " << step;
    }
  }
}

TEST(LocalSum, OnCpuDevicesReplicasAreAddedInTurn) {
  for (const int replicas : {1, 2, 3, 5}) {
    const comm::SyncedStage synced = stage_of(replicas, at::kFloat, {});
    LocalSum sum({synced}, {.bucket_bytes = 2 * kSize * sizeof(float)});
    at::Tensor in_turn = gradient_of(0, at::kFloat);
    for (int r = 1; r < replicas; ++r) in_turn = in_turn + gradient_of(r, at::kFloat);
    for (int r = 0; r < replicas; ++r) synced.gradients[r].copy_(gradient_of(r, at::kFloat));
    run_step(sum, replicas);
    EXPECT_TRUE(at::equal(synced.gradients[0], in_turn)) << replicas;
    for (int r = 1; r < replicas; ++r) EXPECT_TRUE(at::equal(synced.gradients[r], gradient_of(r, at::kFloat)));
  }
}

TEST(LocalSum, InPairsTheSumIsTheTreesBitForBitAndAsNearAsItsDepthSays) {
  for (const int replicas : {1, 2, 3, 4, 7, 8}) expect_sums(replicas, Order::kInPairs, {});
}

// Gradients are r + 1 everywhere; their sum is R (R + 1) / 2.
TEST(LocalSum, InPairsInFloat64TheSumIsTheClosedForm) {
  for (const int replicas : {2, 3, 6, 16}) {
    const comm::SyncedStage synced = stage_of(replicas, at::kDouble, {});
    LocalSum sum({synced}, {.bucket_bytes = 2 * kSize * sizeof(double), .order = Order::kInPairs});
    for (int r = 0; r < replicas; ++r) synced.gradients[r].fill_(r + 1);
    run_step(sum, replicas);
    EXPECT_TRUE(
        at::equal(synced.gradients[0], at::full({kParams * kSize}, replicas * (replicas + 1) / 2.0, at::kDouble)));
  }
}

TEST(LocalSum, AStepAfterOneThatFailedBeginsAnew) {
  const comm::SyncedStage synced = stage_of(2, at::kDouble, {});
  LocalSum sum({synced}, {.bucket_bytes = 2 * kSize * sizeof(double)});
  sum.begin_step();
  sum.on_backward_done(ReplicaId{1}, StageId{0});  // and replica 0 has failed
  for (int r = 0; r < 2; ++r) synced.gradients[r].fill_(r + 1);
  run_step(sum, 2);
  EXPECT_TRUE(at::equal(synced.gradients[0], at::full({kParams * kSize}, 3.0, at::kDouble)));
}

TEST(LocalSum, ReplicasThatShareAGpuAreAddedInPairs) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  for (const int replicas : {2, 4, 7})
    expect_sums(replicas, Order::kInPairs, std::vector<device::Device>(replicas, {device::DeviceKind::kCuda, 0}));
}

TEST(LocalSum, ReplicasOfAGpuAndOfCpuDevicesAreAddedInPairs) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  const device::Device gpu{device::DeviceKind::kCuda, 0}, cpu{};
  expect_sums(4, Order::kInPairs, {gpu, cpu, cpu, gpu});
  expect_sums(3, Order::kInPairs, {cpu, gpu, gpu});
}

TEST(LocalSum, ReplicasOfTwoDevicesAreAddedInPairs) {
  if (device::cuda_device_count() < 2) GTEST_SKIP() << "fewer than two CUDA devices are visible";
  const device::Device first{device::DeviceKind::kCuda, 0}, second{device::DeviceKind::kCuda, 1};
  expect_sums(4, Order::kInPairs, {first, second, first, second});
  expect_sums(4, Order::kInPairs, {first, first, second, second});
}

}  // namespace
}  // namespace sluice::ddp
