// pass_watch: callbacks for the outputs and gradients of single layers in a training pass with sums in the order of a
// tree. Threads: calls come from all device threads, those for different micro-batches at the same time.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "nn/layer.h"

namespace sluice::pipeline {

class PassWatch {
 public:
  virtual ~PassWatch() = default;

  // micro_batch: numbered over all replicas and processes.
  virtual void on_outputs(std::int64_t micro_batch, const std::string& layer, const nn::Tensors& outputs) = 0;
  virtual void on_gradient(std::int64_t micro_batch, const std::string& parameter, const at::Tensor& gradient) = 0;
};

}  // namespace sluice::pipeline
