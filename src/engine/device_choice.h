// device_choice: the devices of one process that a plan runs on.
#pragma once

#include <vector>

#include "device/device.h"

namespace sluice::engine {

struct DeviceChoice {
  std::vector<device::Device> devices;  // plan.replicas x plan.devices(), replica by replica
  int cpu_threads = 1;                  // per slot on a CPU device
};

}  // namespace sluice::engine
