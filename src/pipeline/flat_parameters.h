// flat_parameters: a stage's parameters, gradients and buffers as views into flat tensors, for which the optimizer and
// the reducer make few calls. Local replicas in the same memory share one flat value tensor; each has its own gradient.
// Order: trained parameters, then trained copies of tied parameters (nn::Parameter), then untrained ones. An optimizer
// therefore updates a front part, and untrained parameters have no gradient.
// A pass starts with undefined gradients, and a parameter's first gradient is written to the flat tensor; or each
// micro-batch does, whose gradients are added in the order of a tree (gradient_tree.h).
// Threads: values are written between steps only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/ids.h"
#include "nn/layer.h"
#include "pipeline/gradient_tree.h"
#include "pipeline/pass_watch.h"

namespace sluice::pipeline {

struct ParameterEntry {
  ParamId id;
  std::string name;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t begin;  // in elements; aligned to 64 bytes
  std::int64_t numel;
  std::string tied_to;
  bool is_trained;  // its value required a gradient
  nn::ParameterRole role = nn::ParameterRole::kWeight;
  bool is_classifier = false;
  std::vector<std::string> other_names = {};  // of the same tensor in files
};

class FlatParameters {
 public:
  // Lays out the parameters of `layers`, numbered from `first`, moves them to `device` and replaces them by views.
  // Meta tensors become zeros; load their values. `shared`: another replica's parameters in the same memory, whose
  // values replace the layers' own; may be null.
  FlatParameters(const std::vector<std::unique_ptr<nn::Layer>>& layers, ParamId first, c10::Device device,
                 const FlatParameters* shared);

  [[nodiscard]] const std::vector<ParameterEntry>& entries() const { return entries_; }
  [[nodiscard]] const at::Tensor& values() const { return values_; }  // [elements], without gradient
  // [trained elements], in the layout of the front part of values().
  [[nodiscard]] const at::Tensor& gradients() const { return gradients_; }
  // Makes all gradients undefined. gradients() has no meaning until settle_gradients().
  void begin_gradients();
  // begin_gradients() for recorded work (device/graph.h): gradients start as zeros, with the same bits.
  void begin_gradients_in_place();
  // begin_gradients() for sums in the order of a tree. Call begin_micro_batch() before the backward of each micro-batch
  // (numbered over all replicas), and settle_gradients() after it.
  void begin_gradient_tree(const TreePart& part, PassWatch* watch = nullptr);
  void begin_micro_batch(std::int64_t micro_batch);
  // For the deferred part of a micro-batch: the entries that it completes.
  void begin_micro_batch(std::int64_t micro_batch, const std::vector<std::size_t>& entries);
  [[nodiscard]] bool has_tree() const { return has_tree_; }
  [[nodiscard]] const std::shared_ptr<NodeGradients>& node_gradients() const { return tree_.nodes(); }
  // Call when autograd has given this entry's leaf a gradient, which is moved or added to the flat tensor or the tree.
  void settle_gradient(std::size_t entry);
  // Takes an unfinished gradient out of its leaf. Call settle_gradient() when it is complete.
  [[nodiscard]] at::Tensor take_unsettled(std::size_t entry);
  // settle_gradient() for all entries; entries without a gradient get zeros.
  void settle_gradients();
  // [elements]: the floating-point buffers of batch-norm; may be empty.
  [[nodiscard]] const at::Tensor& running_statistics() const { return running_statistics_; }

  [[nodiscard]] std::int64_t updated_elements() const { return updated_elements_; }

  // A view of `flat`, a tensor with this layout, in the shape of the parameter.
  [[nodiscard]] static at::Tensor view(const at::Tensor& flat, const ParameterEntry& entry);
  // [entry]: the leaf that the layers use.
  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }
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
  // [entry]: not trained, or its leaf's gradient is a view of gradients_; with a tree: the current micro-batch's
  // gradient is in the tree.
  std::vector<char> is_settled_;
  std::vector<nn::Buffer*> buffers_;
  at::Tensor values_;
  at::Tensor gradients_;
  at::Tensor running_statistics_;
  GradientTree tree_;
  bool has_tree_ = false;  // in this pass
  PassWatch* watch_ = nullptr;
  std::int64_t micro_batch_ = 0;
};

}  // namespace sluice::pipeline
