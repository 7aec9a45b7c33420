#include "device/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/sanitizers.h"

namespace sluice::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Device kFirst{DeviceKind::kCpu, 0};
constexpr Device kSecond{DeviceKind::kCpu, 1};
constexpr std::uint64_t kMiB = 1 << 20;

class Memory : public testing::Test {
 protected:
  static void SetUpTestSuite() { count_memory(); }
  void TearDown() override {
    for (const Device device : {kFirst, kSecond}) {
      EXPECT_EQ(memory_use(device).current, 0U) << to_string(device);
      limit_memory(device, 0);
      reset_peak_memory(device);
    }
  }
};

at::Tensor mebibytes(std::int64_t count) { return at::empty({count * std::int64_t{1 << 18}}); }

TEST_F(Memory, IsTheDevicesWhoseScopeTheThreadIsIn) {
  const std::uint64_t host = host_memory_use().current;
  const at::Tensor of_host = mebibytes(1);
  EXPECT_EQ(host_memory_use().current, host + kMiB);
  {
    const MemoryScope first(kFirst, MemoryKind::kParameters);
    const at::Tensor weights = mebibytes(2);
    at::Tensor gradients, elsewhere;
    {
      const MemoryScope of_gradients(MemoryKind::kGradients);
      gradients = mebibytes(3);
      const MemoryScope second(kSecond, MemoryKind::kActivations);
      elsewhere = mebibytes(4);
    }
    EXPECT_EQ(memory_use(kFirst).by_kind, (BytesByKind{{2 * kMiB, 3 * kMiB, 0, 0}}));
    EXPECT_EQ(memory_use(kSecond).by_kind, (BytesByKind{{0, 0, 0, 4 * kMiB}}));
    std::jthread([] { const at::Tensor of_its_own = mebibytes(1); }).join();
    EXPECT_EQ(memory_use(kFirst).current, 5 * kMiB);
  }
  EXPECT_EQ(memory_use(kFirst).peak, 5 * kMiB);
  EXPECT_EQ(peak_bytes(kFirst), 5 * kMiB);
  EXPECT_EQ(host_memory_use().current, host + kMiB);
}

TEST_F(Memory, WhatAnotherThreadFreesIsTakenOffTheDeviceThatAllocatedIt) {
  at::Tensor passed_on;
  {
    const MemoryScope scope(kFirst, MemoryKind::kActivations);
    passed_on = mebibytes(2);
  }
  EXPECT_EQ(memory_use(kFirst).current, 2 * kMiB);
  std::jthread([&] {
    const MemoryScope scope(kSecond, MemoryKind::kActivations);
    passed_on = mebibytes(1);
    EXPECT_EQ(memory_use(kFirst).current, 0U);
    EXPECT_EQ(memory_use(kSecond).current, kMiB);
    passed_on.reset();
  }).join();
}

TEST_F(Memory, ALimitThrowsAndTheThreadGoesOn) {
  const MemoryScope scope(kSecond, MemoryKind::kActivations);
  limit_memory(kSecond, 8 * kMiB);
  const at::Tensor weights = [] {
    const MemoryScope of_weights(MemoryKind::kParameters);
    return mebibytes(4);
  }();
  const at::Tensor input = mebibytes(2);
  try {
    static_cast<void>(at::relu(at::cat({input, input})));
    FAIL() << "the limit was not held";
  } catch (const MemoryLimitError& error) {
    EXPECT_EQ(error.device(), kSecond);
    EXPECT_EQ(error.asked(), 4 * kMiB);
    EXPECT_EQ(error.use().current, 6 * kMiB);
    EXPECT_EQ(describe(error.use().by_kind), "parameters 4.0 MiB, activations 2.0 MiB");
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cpu:1"), HasSubstr("no room for 4.0 MiB")));
  }
  EXPECT_EQ(memory_use(kSecond).current, 6 * kMiB);
  EXPECT_EQ(at::relu(input).numel(), input.numel());
}

TEST_F(Memory, ALimitInsideABackwardKeepsItsTypeAndLeavesAutogradUsable) {
  const MemoryScope scope(kFirst, MemoryKind::kActivations);
  const at::Tensor weight = at::ones({1 << 18}).requires_grad_();
  const auto backward = [&](std::uint64_t room) {
    const at::Tensor loss = (weight * 2.0).exp().sum();
    limit_memory(kFirst, memory_use(kFirst).current + room);
    torch::autograd::backward({loss}, {at::ones({})});
  };
  EXPECT_THROW(backward(kMiB / 2), MemoryLimitError);
  limit_memory(kFirst, 0);
  weight.mutable_grad().reset();
  backward(16 * kMiB);
  EXPECT_NEAR(weight.grad()[0].item<double>(), 2 * std::exp(2.0), 1e-4);
}

TEST_F(Memory, TheSystemsRefusalKeepsLibTorchsWords) {
  const MemoryScope scope(kFirst, MemoryKind::kActivations);
  try {
    static_cast<void>(at::empty({std::int64_t{1} << 44}));
    FAIL() << "no machine has so much memory";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("you tried to allocate 70368744177664 bytes"));
  }
}

TEST_F(Memory, EmptyTensorsAndResizedOnesWork) {
  const MemoryScope scope(kFirst, MemoryKind::kActivations);
  at::Tensor tensor = at::empty({0});
  EXPECT_EQ(memory_use(kFirst).current, 0U);
  tensor.resize_({100}).fill_(3);
  EXPECT_EQ(memory_use(kFirst).current, 400U);
  tensor.resize_({200});
  EXPECT_EQ(tensor[99].item<float>(), 3);
  EXPECT_EQ(memory_use(kFirst).current, 800U);
}

TEST_F(Memory, ARepeatedPassFetchesNothing) {
  if (kHasAddressSanitizer) GTEST_SKIP() << "nothing is kept under AddressSanitizer";
  const MemoryScope scope(kFirst, MemoryKind::kActivations);
  const at::Tensor weight = at::randn({64, 64}).requires_grad_();
  const auto pass = [&] {
    at::Tensor output = at::ones({16, 64});
    for (int i = 0; i < 4; ++i) output = at::tanh(at::mm(output, weight));
    torch::autograd::backward({output.sum()}, {at::ones({})});
  };
  for (int i = 0; i < 3; ++i) pass();
  const std::uint64_t fetches = memory_use(kFirst).fetches;
  for (int i = 0; i < 10; ++i) pass();
  EXPECT_EQ(memory_use(kFirst).fetches, fetches);
}

}  // namespace
}  // namespace sluice::device
