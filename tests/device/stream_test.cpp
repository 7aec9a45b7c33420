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
