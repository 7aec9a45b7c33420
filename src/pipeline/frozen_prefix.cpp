#include "pipeline/frozen_prefix.h"

#include <algorithm>
#include <iterator>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/parts.h"
#include "pipeline/micro_batch.h"

namespace sluice::pipeline {
namespace {

std::set<std::string> trained_in(const LayerList& layers) {
  std::set<std::string> names;
  for (const auto& layer : layers) {
    for (const nn::Parameter* parameter : layer->parameters())
      if (parameter->value.requires_grad()) names.insert(parameter->name);
  }
  return names;
}

LayerList frozen(LayerList layers) {
  for (const auto& layer : layers) {
    for (nn::Parameter* parameter : layer->parameters()) parameter->value.requires_grad_(false);
  }
  return layers;
}

}  // namespace

FrozenPrefix::FrozenPrefix(LayerList layers, c10::Device device, nn::Numerics numerics)
    : trained_(trained_in(layers)),
      layers_(frozen(std::move(layers))),
      numerics_(numerics),
      parameters_(std::make_unique<FlatParameters>(layers_, ParamId{0}, device, nullptr)) {}

FrozenPrefix::Features FrozenPrefix::forward(const nn::Tensors& inputs, nn::TransformedWeights* transformed,
                                             int from) const {
  const at::NoGradGuard no_grad;
  const nn::ForwardContext context{
      .numerics = numerics_, .update_statistics = false, .transformed_weights = transformed};
  Features features{.tensors = inputs};
  for (std::size_t i = from; i < layers_.size(); ++i)
    features.tensors = layers_[i]->forward_all(features.tensors, context);
  for (std::size_t i = 0; i < features.tensors.size(); ++i) {
    const auto same = [&](const at::Tensor& input) { return input.is_same(features.tensors[i]); };
    // Inputs that are left out are all the same undefined tensor, so the one at the same index is tried first.
    const auto found = i < inputs.size() && same(inputs[i]) ? inputs.begin() + static_cast<std::ptrdiff_t>(i)
                                                            : std::ranges::find_if(inputs, same);
    features.sources.push_back(found == inputs.end() ? kMade : static_cast<int>(found - inputs.begin()));
  }
  return features;
}

std::vector<PrefixShare> prefix_shares(const std::vector<std::int64_t>& sizes, int devices) {
  std::int64_t samples = 0;
  for (const std::int64_t size : sizes) samples += size;
  std::vector<PrefixShare> shares;
  std::size_t micro_batch = 0;
  std::int64_t begin = 0;
  const std::vector<std::int64_t> of_devices = split_sizes(samples, devices);
  for (int device = 0; device < devices; ++device) {
    for (std::int64_t left = of_devices[device]; left > 0;) {
      if (begin == sizes[micro_batch]) {
        ++micro_batch, begin = 0;
        continue;
      }
      const std::int64_t count = std::min(left, sizes[micro_batch] - begin);
      shares.push_back({MicroBatchId{static_cast<int>(micro_batch)}, DeviceId{device}, begin, begin + count});
      begin += count;
      left -= count;
    }
  }
  return shares;
}

std::vector<PrefixShare> whole_prefix_shares(const std::vector<std::int64_t>& sizes, int devices) {
  const auto filled = std::ranges::count_if(sizes, [](std::int64_t size) { return size > 0; });
  std::vector<PrefixShare> shares;
  for (int device = 0; device < devices; ++device) {
    const NumberRange own = part_range(filled, devices, device);
    for (std::int64_t m = own.begin; m < own.end; ++m)
      shares.push_back({MicroBatchId{static_cast<int>(m)}, DeviceId{device}, 0, sizes.at(m)});
  }
  return shares;
}

LayerList take_first(LayerList& layers, int count) {
  check(count >= 0 && count <= static_cast<int>(layers.size()), "as many layers in the model as are taken from it");
  const auto end = layers.begin() + count;
  LayerList first(std::make_move_iterator(layers.begin()), std::make_move_iterator(end));
  layers.erase(layers.begin(), end);
  return first;
}

}  // namespace sluice::pipeline
