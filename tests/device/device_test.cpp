#include "device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::device {
namespace {

using ::testing::HasSubstr;

std::string message_of(auto&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Device, NamesRoundTrip) {
  EXPECT_EQ(parse_device("cpu:3"), (Device{DeviceKind::kCpu, 3}));
  EXPECT_EQ(to_string(parse_device("cuda:1")), "cuda:1");
  EXPECT_EQ(to_string(parse_device("cuda")), "cuda:0");
}

TEST(Device, WhatIsNoDeviceIsRefusedByName) {
  for (const std::string text : {"gpu:0", "cpu:", "cpu:-1", "cpu:1x", ""}) {
    EXPECT_THAT(message_of([&] { static_cast<void>(parse_device(text)); }), HasSubstr("'" + text + "' is not a device"))
        << text;
  }
}

TEST(ChooseDevices, CpuGivesOneVirtualDevicePerSlot) {
  const auto devices = choose_devices({"cpu"}, 3);
  EXPECT_EQ(devices, (std::vector<Device>{{DeviceKind::kCpu, 0}, {DeviceKind::kCpu, 1}, {DeviceKind::kCpu, 2}}));
}

TEST(ChooseDevices, AutoFallsBackToCpus) {
  const int more_than_there_are = cuda_device_count() + 1;
  EXPECT_EQ(choose_devices({"auto"}, more_than_there_are).back().kind, DeviceKind::kCpu);
}

TEST(ChooseDevices, NamesMayRepeatButMustFillTheGrid) {
  EXPECT_EQ(choose_devices({"cpu:0", "cpu:0"}, 2).size(), 2U);
  const auto first = choose_devices({"cpu:3", "cpu:1", "cpu:2", "cuda:63"}, 2);  // what is not used need not be there
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(to_string(first[0]), "cpu:3");
  EXPECT_EQ(to_string(first[1]), "cpu:1");
  EXPECT_THAT(message_of([] {
                static_cast<void>(choose_devices({"cpu:0", "cpu:1", "cpu:2"}, 4));
              }),
              HasSubstr("names 3 devices"));
}

TEST(ChooseDevices, NamesThatAreEnoughForAllProcessesAreDealtOut) {
  const std::vector<std::string> names{"cpu:5", "cpu:6", "cpu:7", "cpu:8"};
  EXPECT_EQ(choose_devices(names, 2, 1, 2), (std::vector<Device>{{DeviceKind::kCpu, 7}, {DeviceKind::kCpu, 8}}));
  EXPECT_EQ(choose_devices(names, 2, 0, 2), (std::vector<Device>{{DeviceKind::kCpu, 5}, {DeviceKind::kCpu, 6}}));
  const auto own = choose_devices(names, 2, 2, 3);
  EXPECT_EQ(own, (std::vector<Device>{{DeviceKind::kCpu, 5}, {DeviceKind::kCpu, 6}}))
      << "each process has its own list";
}

TEST(ChooseDevices, AProcessKeepsItsSliceWhenAPlanNeedsFewer) {
  const std::vector<std::string> names{"cpu:0", "cpu:1", "cpu:2", "cpu:3", "cpu:4"};
  for (const int process : {0, 1}) {
    const Device first = choose_devices(names, 2, process, 2).front();
    EXPECT_EQ(choose_devices(names, 1, process, 2), std::vector<Device>{first}) << process;
  }
  EXPECT_EQ(unused_names(names, 1, 2), (std::vector<std::string>{"cpu:1", "cpu:3", "cpu:4"}));
  EXPECT_EQ(unused_names(names, 2, 2), std::vector<std::string>{"cpu:4"});
  EXPECT_EQ(unused_names(names, 3, 2), (std::vector<std::string>{"cpu:3", "cpu:4"})) << "the same for both";
  EXPECT_EQ(unused_names(names, 5, 1), std::vector<std::string>{});
}

TEST(ChooseDevices, AMissingGpuIsNamedWithWhatThereIs) {
  EXPECT_THAT(message_of([] { static_cast<void>(choose_devices({"cuda:63"}, 1)); }), HasSubstr("cuda:63"));
  EXPECT_THAT(message_of([] { static_cast<void>(choose_devices({"cuda"}, 64)); }), HasSubstr("needs 64 CUDA devices"));
}

TEST(Device, AllCpuDevicesShareOneMemory) {
  EXPECT_TRUE(same_memory({DeviceKind::kCpu, 0}, {DeviceKind::kCpu, 5}));
  EXPECT_FALSE(same_memory({DeviceKind::kCuda, 0}, {DeviceKind::kCuda, 1}));
}

TEST(ListDevices, BeginsWithTheCpuAndItsMemory) {
  const auto devices = list_devices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0].device.kind, DeviceKind::kCpu);
  EXPECT_GT(devices[0].memory_bytes, 0U);
}

}  // namespace
}  // namespace sluice::device
