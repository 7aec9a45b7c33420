// gradient_tree: the gradients of a stage's micro-batches, added in the order of core/sum_tree.h over all micro-batches
// of the step, so that the sum does not depend on which replica ran which of them. The result is the sums of
// nodes_within() this replica's micro-batches. Besides the results, up to log2(m) + 1 gradients wait in memory if m
// micro-batches run in order. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/parts.h"
#include "core/sum_tree.h"

namespace sluice::pipeline {

// A replica's part of the tree.
struct TreePart {
  NumberRange own;              // its micro-batches, numbered over all replicas and processes
  std::int64_t all = 0;         // micro-batches of the step
  bool rounds_to_bf16 = false;  // each leaf and each sum
};

// [node]: flat gradients of the nodes in order, as long as flat_parameters.h; the first is FlatParameters::gradients().
using NodeGradients = std::vector<at::Tensor>;

class GradientTree {
 public:
  // Views of an entry in a flat tensor.
  struct Shape {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int64_t begin;

    [[nodiscard]] at::Tensor view(const at::Tensor& flat) const { return flat.as_strided(sizes, strides, begin); }
  };

  GradientTree() = default;
  // [entry]; entries that are not trained are never added.
  GradientTree(at::Tensor gradients, std::vector<Shape> shapes);

  void begin(const TreePart& part);
  // Keeps the tensor, and writes to it if no other shares its memory. Undefined: zeros.
  void add(std::size_t entry, std::int64_t micro_batch, at::Tensor gradient);

  // Changes with begin(); other threads may read it between the last add() and the next begin().
  [[nodiscard]] const std::shared_ptr<NodeGradients>& nodes() const { return nodes_; }

 private:
  [[nodiscard]] const at::Tensor* flat_of(const TreeNode& node) const;

  std::vector<Shape> shapes_;
  std::shared_ptr<NodeGradients> nodes_;
  std::vector<TreeNode> tops_;  // of the current part
  TreePart part_;
  std::vector<TreeSum<at::Tensor>> sums_;  // [entry]
};

}  // namespace sluice::pipeline
