// workload: what measuring needs to know of a run: the model, where and how its layers run, and the names that tell one
// measurement from another. A value.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "models/model.h"
#include "nn/layer.h"
#include "optim/optimizer.h"

namespace sluice::measure {

struct Workload {
  models::ModelOptions model;  // its seed is the one that dropout draws from
  int layers = 0;              // of the model
  device::Device device;       // the first of this process
  int threads = 1;             // of a CPU device
  nn::Numerics numerics = {};
  int replicas = 1;  // over all processes
  optim::OptimizerOptions optimizer;
  bool is_deterministic = false;
  bool tf32 = false;               // of a GPU in float32
  std::uint64_t memory_limit = 0;  // bytes of tensors that a device may hold; 0: no limit
};

}  // namespace sluice::measure
