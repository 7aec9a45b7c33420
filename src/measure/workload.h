// workload: what measuring needs to know about a run: the model, how its layers run, and what identifies a measurement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "models/model.h"
#include "nn/layer.h"
#include "optim/optimizer.h"
#include "task/task.h"

namespace sluice::measure {

struct Workload {
  models::ModelOptions model;  // its seed is also the seed of dropout
  task::TaskPtr task = task::make_classification();
  std::int64_t tokens = 0;        // most tokens of a text, for bytes; 0: as many as the model has positions
  std::int64_t usual_tokens = 0;  // that batches are padded to on average, for times; 0: tokens
  std::vector<std::string> optional_inputs = {};  // those that the data have, such as mask
  int layers = 0;
  device::Device device;
  int threads = 1;  // per CPU device
  nn::Numerics numerics = {};
  int replicas = 1;
  optim::OptimizerOptions optimizer;
  bool is_deterministic = false;
  bool tf32 = false;               // of a GPU in float32
  std::uint64_t memory_limit = 0;  // bytes of tensors per device; 0: no limit
};

}  // namespace sluice::measure
