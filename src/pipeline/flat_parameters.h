// flat_parameters: a stage's parameters, gradients and buffers as views into flat tensors, so that the optimizer, the
// reducer and the running-statistics merge are a few calls over whole buffers instead of one per parameter.
// Local replicas in the same memory share one flat value tensor; each has its own gradient.
// Their order: those that are trained, then trained copies of parameters that they are tied to (nn::Parameter), then
// those that are not trained. So an optimizer takes a front part, and what is not trained has no gradient.
// A pass begins with gradients that are not there: what a parameter receives first is written to its part of the flat
// tensor (begin_gradients()), instead of added to zeros there, with the same bits.
// Threads: built by one thread before the run; then the values are written only between steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/ids.h"
#include "nn/layer.h"

namespace sluice::pipeline {

// Where a parameter lies in the flat tensors.
struct ParameterEntry {
  ParamId id;
  std::string name;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t begin;  // elements; a multiple of 64 bytes
  std::int64_t numel;
  std::string tied_to;  // nn::Parameter
  bool is_trained;      // its value required a gradient
  nn::ParameterRole role = nn::ParameterRole::kWeight;
  bool is_classifier = false;
};

class FlatParameters {
 public:
  // Lays out the parameters of `layers`, numbered from `first`, moves them to `device` and replaces them by views.
  // `shared`: another replica's parameters in the same memory whose values are used instead of the layers' own; may be
  // null.
  FlatParameters(const std::vector<std::unique_ptr<nn::Layer>>& layers, ParamId first, c10::Device device,
                 const FlatParameters* shared);

  [[nodiscard]] const std::vector<ParameterEntry>& entries() const { return entries_; }
  [[nodiscard]] const at::Tensor& values() const { return values_; }  // [elements], no gradient
  // [elements of what is trained]: the layout of the values up to there.
  [[nodiscard]] const at::Tensor& gradients() const { return gradients_; }
  // No parameter has a gradient: what gradients() holds is of no use until settle_gradients().
  void begin_gradients();
  // The same start for work that was recorded (device/graph.h), which has addresses and no choices: every parameter's
  // gradient is zeros in its place, where the first one is added, too. With the same bits.
  void begin_gradients_in_place();
  // Autograd has given the leaf of this entry a gradient: if it is the first one, it moves to its place, where later
  // ones are added.
  void settle_gradient(std::size_t entry);
  // Of all entries: those that have received none have zeros.
  void settle_gradients();
  // [elements]: the buffers of floating-point numbers, of batch-norm; may be empty.
  [[nodiscard]] const at::Tensor& running_statistics() const { return running_statistics_; }

  // Elements that an optimizer updates: before the copies of tied parameters and what is not trained.
  [[nodiscard]] std::int64_t updated_elements() const { return updated_elements_; }

  // A view of `flat`, a tensor with this layout, in the parameter's shape.
  [[nodiscard]] static at::Tensor view(const at::Tensor& flat, const ParameterEntry& entry);
  // The leaf of each entry, as the layers use it.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }
  // Buffers by name, as the layers use them.
  [[nodiscard]] const std::vector<nn::Buffer*>& buffers() const { return buffers_; }

 private:
  void lay_out(const std::vector<nn::Parameter*>& parameters, ParamId first);
  void adopt_parameters(const std::vector<nn::Parameter*>& parameters, c10::Device device,
                        const FlatParameters* shared);
  void adopt_buffers(c10::Device device);

  std::vector<ParameterEntry> entries_;
  std::int64_t updated_elements_ = 0;
  std::int64_t trained_elements_ = 0;
  std::vector<at::Tensor> leaves_;
  std::vector<char> is_settled_;  // [entry]: its leaf's gradient is a view of gradients_, or it is not trained
  std::vector<nn::Buffer*> buffers_;
  at::Tensor values_;
  at::Tensor gradients_;
  at::Tensor running_statistics_;
};

}  // namespace sluice::pipeline
