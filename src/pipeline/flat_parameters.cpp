#include "pipeline/flat_parameters.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "device/memory.h"

namespace sluice::pipeline {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes: a cache line, and the widest vector load

std::int64_t aligned(std::int64_t elements, std::int64_t element_size) {
  const std::int64_t step = kAlignment / element_size;
  return (elements + step - 1) / step * step;
}

bool is_trained(const nn::Parameter& parameter) { return parameter.value.requires_grad(); }

std::vector<nn::Parameter*> parameters_of(const std::vector<std::unique_ptr<nn::Layer>>& layers) {
  std::vector<nn::Parameter*> parameters;
  for (const auto& layer : layers) {
    const auto own = layer->parameters();
    parameters.insert(parameters.end(), own.begin(), own.end());
  }
  const auto rank_of_kind = [](const nn::Parameter* p) { return !is_trained(*p) ? 2 : p->tied_to.empty() ? 0 : 1; };
  std::ranges::stable_sort(parameters, {}, rank_of_kind);
  return parameters;
}

}  // namespace

FlatParameters::FlatParameters(const std::vector<std::unique_ptr<nn::Layer>>& layers, ParamId first, c10::Device device,
                               const FlatParameters* shared) {
  const auto parameters = parameters_of(layers);
  for (const auto& layer : layers) {
    const auto own = layer->buffers();
    buffers_.insert(buffers_.end(), own.begin(), own.end());
  }
  lay_out(parameters, first);
  adopt_parameters(parameters, device, shared);
  adopt_buffers(device);
}

at::Tensor FlatParameters::view(const at::Tensor& flat, const ParameterEntry& entry) {
  return flat.as_strided(entry.sizes, entry.strides, entry.begin);
}

void FlatParameters::lay_out(const std::vector<nn::Parameter*>& parameters, ParamId first) {
  std::int64_t at = 0;
  for (const nn::Parameter* parameter : parameters) {
    const at::Tensor& value = parameter->value;
    check(value.is_non_overlapping_and_dense(), concat("dense parameter ", parameter->name));
    entries_.push_back({ParamId{index(first) + static_cast<int>(entries_.size())}, parameter->name, value.sizes().vec(),
                        value.strides().vec(), at, value.numel(), parameter->tied_to, is_trained(*parameter),
                        parameter->role, parameter->is_classifier, parameter->other_names});
    at = aligned(at + value.numel(), value.element_size());
    if (!entries_.back().is_trained) continue;
    trained_elements_ = at;
    if (parameter->tied_to.empty()) updated_elements_ = at;
  }
}

void FlatParameters::adopt_parameters(const std::vector<nn::Parameter*>& parameters, c10::Device device,
                                      const FlatParameters* shared) {
  const at::NoGradGuard no_grad;
  const auto dtype = parameters.empty() ? at::kFloat : parameters.front()->value.scalar_type();
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  const std::int64_t numel =
      entries_.empty() ? 0 : aligned(entries_.back().begin + entries_.back().numel, at::elementSize(dtype));
  values_ = shared != nullptr ? shared->values_ : at::zeros({numel}, options);
  {
    const device::MemoryScope of_gradients(device::MemoryKind::kGradients);
    gradients_ = at::zeros({trained_elements_}, options);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const at::Tensor value = view(values_, entries_[i]);
    if (shared == nullptr && !parameters[i]->value.is_meta()) value.copy_(parameters[i]->value);
    // detach() keeps the flat tensor's version counter, so autograd detects an update under a live graph.
    const at::Tensor leaf = value.detach().requires_grad_(entries_[i].is_trained);
    if (entries_[i].is_trained) leaf.mutable_grad() = view(gradients_, entries_[i]);
    parameters[i]->value = leaf;
    leaves_.push_back(leaf);
  }
  is_settled_.assign(leaves_.size(), 1);
  std::vector<GradientTree::Shape> shapes;
  for (const ParameterEntry& entry : entries_) shapes.push_back({entry.sizes, entry.strides, entry.begin});
  tree_ = GradientTree(gradients_, std::move(shapes));
}

void FlatParameters::begin_gradients() {
  has_tree_ = false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].is_trained) continue;
    leaves_[i].mutable_grad() = at::Tensor();
    is_settled_[i] = 0;
  }
}

void FlatParameters::begin_gradient_tree(const TreePart& part, PassWatch* watch) {
  watch_ = watch;
  begin_gradients();
  is_settled_.assign(leaves_.size(), 1);
  has_tree_ = true;
  tree_.begin(part);
}

void FlatParameters::begin_micro_batch(std::int64_t micro_batch) {
  std::vector<std::size_t> trained;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].is_trained) trained.push_back(i);
  begin_micro_batch(micro_batch, trained);
}

void FlatParameters::begin_micro_batch(std::int64_t micro_batch, const std::vector<std::size_t>& entries) {
  check(std::ranges::find(is_settled_, 0) == is_settled_.end(), "the gradients of the last micro-batch in the tree");
  micro_batch_ = micro_batch;
  for (const std::size_t entry : entries) is_settled_[entry] = 0;
}

at::Tensor FlatParameters::take_unsettled(std::size_t entry) {
  is_settled_[entry] = 1;
  return std::exchange(leaves_[entry].mutable_grad(), at::Tensor());
}

void FlatParameters::begin_gradients_in_place() {
  has_tree_ = false;
  settle_gradients();
  const at::NoGradGuard no_grad;
  gradients_.zero_();
}

void FlatParameters::settle_gradient(std::size_t entry) {
  if (is_settled_[entry] != 0) return;
  is_settled_[entry] = 1;
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = leaves_[entry].mutable_grad();
  if (has_tree_) {
    if (watch_ != nullptr && gradient.defined()) watch_->on_gradient(micro_batch_, entries_[entry].name, gradient);
    return tree_.add(entry, micro_batch_, std::exchange(gradient, at::Tensor()));
  }
  at::Tensor part = view(gradients_, entries_[entry]);
  if (gradient.defined()) {
    // Adding to zero turns -0 into 0; a copy would keep -0.
    at::add_out(part, gradient, at::scalar_tensor(0, gradient.options().device(at::kCPU)));
  } else {
    part.zero_();
  }
  gradient = part;
}

void FlatParameters::settle_gradients() {
  for (std::size_t i = 0; i < entries_.size(); ++i) settle_gradient(i);
}

void FlatParameters::adopt_buffers(c10::Device device) {
  std::int64_t numel = 0;
  at::ScalarType dtype = at::kFloat;
  for (const nn::Buffer* buffer : buffers_) {
    if (!buffer->value.is_floating_point()) continue;
    dtype = buffer->value.scalar_type();
    numel = aligned(numel + buffer->value.numel(), buffer->value.element_size());
  }
  running_statistics_ = at::zeros({numel}, at::TensorOptions().dtype(dtype).device(device));
  std::int64_t at = 0;
  for (nn::Buffer* buffer : buffers_) {
    if (!buffer->value.is_floating_point()) {
      buffer->value = buffer->value.to(device);
      continue;
    }
    const at::Tensor view = running_statistics_.narrow(0, at, buffer->value.numel()).view(buffer->value.sizes());
    view.copy_(buffer->value);
    at = aligned(at + buffer->value.numel(), buffer->value.element_size());
    buffer->value = view;
  }
}

}  // namespace sluice::pipeline
