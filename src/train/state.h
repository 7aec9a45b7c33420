// state: a composition's parameters, buffers and optimizer state under global layer names, so that a checkpoint fits
// any number of stages and replicas, and a public model's weights load under their public names. Not here: files
// (records/), the position in the data (loop.h). Errors: CheckpointError names the tensor, what it should be, and
// `source`.
#pragma once

#include <string>

#include "train/compose.h"
#include "train/records/checkpoint.h"

namespace sluice::train {

// Of replica 0; views on CPU devices.
[[nodiscard]] TensorMap parameter_tensors(const Composition& composition);
[[nodiscard]] TensorMap buffer_tensors(const Composition& composition);
[[nodiscard]] TensorMap model_tensors(const Composition& composition);  // both
[[nodiscard]] TensorMap gradient_tensors(
    const Composition& composition);  // by parameter name; replica 0, views on CPU devices
[[nodiscard]] TensorMap optimizer_tensors(const Composition& composition);  // "exp_avg/<parameter>"

// Exactly the model's tensors, no more and no fewer, all of them finite; into all replicas.
void load_model(Composition& composition, const TensorMap& tensors, const std::string& source);
void load_optimizer(Composition& composition, const TensorMap& tensors, std::int64_t steps, const std::string& source);

// What a trial step may change besides gradients: the buffers of all replicas. restore() puts them back.
// The composition must outlive it.
class BufferSnapshot {
 public:
  explicit BufferSnapshot(const Composition& composition);
  void restore() const;

 private:
  const Composition& composition_;
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;  // live tensor, copy
};

}  // namespace sluice::train
