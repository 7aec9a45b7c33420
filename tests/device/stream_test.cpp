#include "device/stream.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace sluice::device {
namespace {

TEST(Transfer, BetweenCpuDevicesPassesThePointer) {
  const Stream from = Stream::make({DeviceKind::kCpu, 0});
  const Stream to = Stream::make({DeviceKind::kCpu, 1});
  const at::Tensor tensor = at::arange(4);
  const at::Tensor moved = transfer(tensor, from.record(), to);
  EXPECT_EQ(moved.data_ptr(), tensor.data_ptr());
}

TEST(Transfer, ToAGpuAndBackKeepsTheValues) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  const Stream cpu = Stream::make({DeviceKind::kCpu, 0});
  const Stream gpu = Stream::make({DeviceKind::kCuda, 0});
  const at::Tensor tensor = at::arange(1 << 20).to(at::kFloat);
  const at::Tensor there = transfer(tensor, cpu.record(), gpu);
  ASSERT_TRUE(there.is_cuda());
  at::Tensor doubled;
  {
    const StreamGuard guard(gpu);
    doubled = there * 2;
  }
  const at::Tensor back = transfer(doubled, gpu.record(), cpu);
  gpu.synchronize();
  EXPECT_TRUE(at::equal(back, tensor * 2));
}

TEST(Transfer, BetweenCpuDevicesTakesNoQueue) {
  const Stream to = Stream::make({DeviceKind::kCpu, 1}), from = Stream::make_beside({}), into = Stream::make_beside({});
  const at::Tensor tensor = at::arange(4);
  EXPECT_EQ(transfer(tensor, from.record(), to, {.from = from, .into = into}).data_ptr(), tensor.data_ptr());
  EXPECT_FALSE(transfer(at::Tensor(), {}, to, {.from = from, .into = into}).defined());
}

// While the compute queue is busy, the copy completes first; work on the copy runs later.
TEST(Transfer, ToAGpuOnAQueueOfItsOwnPassesByWhatIsComputed) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  constexpr Nanoseconds kBusy = 100'000'000;
  const Device device{DeviceKind::kCuda, 0};
  const Stream host = Stream::make({}), gpu = Stream::make(device), load = Stream::make_beside(device);
  const at::Tensor tensor = at::arange(1 << 20).to(at::kFloat).pin_memory();
  gpu.delay(1), load.delay(1);  // the kernel is loaded
  gpu.synchronize(), load.synchronize();
  const Moment begin = gpu.moment();
  gpu.delay(kBusy);
  const at::Tensor there = transfer(tensor, {}, gpu, {.from = host, .into = load});
  const Moment copied = load.moment();
  at::Tensor doubled;
  {
    const StreamGuard guard(gpu);
    doubled = there * 2;
  }
  const Moment computed = gpu.moment();
  gpu.synchronize();
  EXPECT_LT(copied.time(begin, 0), kBusy);
  EXPECT_GE(computed.time(begin, 0), kBusy);
  EXPECT_TRUE(at::equal(doubled.cpu(), tensor * 2));
}

// Memory that a copy reads or has made is not reused too early.
TEST(Transfer, ToAGpuAndFromItKeepsItsMemoryUntilItWasRead) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  constexpr int kRounds = 200;
  const Device device{DeviceKind::kCuda, 0};
  const Stream host = Stream::make({}), gpu = Stream::make(device), load = Stream::make_beside(device);
  const at::TensorOptions pinned = at::TensorOptions(at::kFloat).pinned_memory(true);
  at::Tensor sum;
  {
    const StreamGuard guard(gpu);
    sum = at::zeros({1 << 16}, at::TensorOptions(at::kFloat).device(torch_device(device)));
    for (int round = 0; round < kRounds; ++round) {
      gpu.delay(50'000);
      sum += transfer(at::full({1 << 16}, round, pinned), {}, gpu, {.from = host, .into = load});
    }
  }
  const at::Tensor back = transfer(sum, gpu.record(), host, {.from = load, .into = host});
  EXPECT_TRUE(at::equal(back, at::full({1 << 16}, kRounds * (kRounds - 1) / 2, at::kFloat)));
}

TEST(Transfer, BetweenTwoDevicesOnQueuesOfItsOwn) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "fewer than two CUDA devices are visible";
  constexpr Nanoseconds kBusy = 100'000'000;
  const Device here{DeviceKind::kCuda, 0}, there{DeviceKind::kCuda, 1};
  const Stream source = Stream::make(here), target = Stream::make(there);
  const Stream out = Stream::make_beside(here), in = Stream::make_beside(there);
  at::Tensor tensor;
  {
    const StreamGuard guard(source);
    tensor = at::arange(1 << 20, at::TensorOptions(at::kFloat).device(torch_device(here)));
  }
  const Event ready = source.record();
  source.delay(1), target.delay(1);
  source.synchronize(), target.synchronize();
  const Moment begin = out.moment();
  source.delay(kBusy), target.delay(kBusy);
  at::Tensor copy = transfer(tensor, ready, target, {.from = out, .into = in});
  const Moment copied = out.moment();
  tensor = at::Tensor();
  at::Tensor doubled;
  {
    const StreamGuard guard(target);
    doubled = copy * 2;
  }
  target.synchronize(), source.synchronize();
  EXPECT_LT(copied.time(begin, 0), kBusy);
  EXPECT_TRUE(at::equal(doubled.cpu(), at::arange(1 << 20).to(at::kFloat) * 2));
}

TEST(Stream, EventsOfAGpuAreUsedAgain) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  constexpr Nanoseconds kBusy = 10'000'000;
  const Stream gpu = Stream::make({DeviceKind::kCuda, 0}), other = Stream::make({DeviceKind::kCuda, 0});
  gpu.delay(1);
  gpu.synchronize();
  for (int round = 0; round < 50; ++round) {
    const Moment begin = gpu.moment();
    gpu.delay(kBusy);
    other.wait(gpu.record());  // the event is free again, and recorded elsewhere, while `other` waits for it
    other.wait(Stream::make({DeviceKind::kCuda, 0}).record());
    const Moment end = other.moment();
    other.synchronize();
    ASSERT_GE(end.time(begin, 0), kBusy) << round;
  }
}

TEST(Stream, ADelayKeepsAGpuBusyForAtLeastSoLong) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  const Stream gpu = Stream::make({DeviceKind::kCuda, 0});
  gpu.delay(1);  // the kernel is loaded
  gpu.synchronize();
  const Moment begin = gpu.moment();
  gpu.delay(20'000'000);
  const Moment end = gpu.moment();
  gpu.synchronize();
  EXPECT_GE(end.time(begin, 0), 20'000'000);
}

TEST(Stream, ACpuDeviceTakesADelay) { Stream::make({DeviceKind::kCpu, 0}).delay(1'000'000'000); }

TEST(Stream, AnEmptyEventIsOver) {
  const Stream stream = Stream::make({DeviceKind::kCpu, 0});
  stream.wait(Event());
  const at::Tensor tensor = at::arange(4);
  const at::Tensor moved = transfer(tensor, Event(), stream);
  EXPECT_EQ(moved.data_ptr(), tensor.data_ptr());
}

}  // namespace
}  // namespace sluice::device
