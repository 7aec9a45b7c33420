#include "pipeline/gradient_tree.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "device/memory.h"
#include "device/round.h"

namespace sluice::pipeline {

GradientTree::GradientTree(at::Tensor gradients, std::vector<Shape> shapes)
    : shapes_(std::move(shapes)), nodes_(std::make_shared<NodeGradients>(NodeGradients{std::move(gradients)})) {}

void GradientTree::begin(const TreePart& part) {
  part_ = part;
  tops_ = nodes_within(part.own, part.all);
  const device::MemoryScope charge(device::MemoryKind::kGradients);
  while (nodes_->size() < tops_.size()) nodes_->push_back(at::zeros_like(nodes_->front()));
  sums_.assign(shapes_.size(), TreeSum<at::Tensor>(part.own, part.all));
}

const at::Tensor* GradientTree::flat_of(const TreeNode& node) const {
  const auto found = std::ranges::find(tops_, node);
  return found == tops_.end() ? nullptr : &(*nodes_)[static_cast<std::size_t>(found - tops_.begin())];
}

void GradientTree::add(std::size_t entry, std::int64_t micro_batch, at::Tensor gradient) {
  const at::NoGradGuard no_grad;
  const Shape& shape = shapes_[entry];
  if (!gradient.defined()) gradient = at::empty_strided(shape.sizes, shape.strides, nodes_->front().options()).zero_();
  const at::ScalarType type = nodes_->front().scalar_type();
  if (part_.rounds_to_bf16) gradient = gradient.to(at::kBFloat16);
  gradient = gradient.to(type);  // deferred weight gradients may be bfloat16
  // The last addition of a result writes to its flat tensor. A leaf that is a result is copied there.
  bool is_in_place = false;
  const auto add = [&](const TreeNode& sum, const at::Tensor& left, const at::Tensor& right) {
    const at::Tensor* flat = flat_of(sum);
    is_in_place = flat != nullptr;
    // Autograd may give two parameters views of one tensor.
    const bool is_own = left.storage().use_count() == 1;
    at::Tensor result = is_in_place ? shape.view(*flat) : is_own ? left : at::empty_like(left);
    at::add_out(result, left, right);
    if (part_.rounds_to_bf16) device::round_to_bf16(result);
    return result;
  };
  TreeSum<at::Tensor>& sums = sums_[entry];
  const TreeNode node = sums.put({0, micro_batch}, std::move(gradient), add);
  const at::Tensor* flat = flat_of(node);
  if (flat == nullptr || is_in_place) return;
  at::Tensor& value = sums.at(node);
  value = shape.view(*flat).copy_(value);
}

}  // namespace sluice::pipeline
