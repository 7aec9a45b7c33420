// Runs an exported program in parts, with autograd in each part and gradients passed by hand, as stages do.
//
//     graph_run_program FILE INPUTS OUT CUTS [fp64] [halves]
//
// INPUTS has the model's inputs by name and `gradient`, that of its first output. CUTS: "blocks", "none" or "K": before
// every K-th node where a cut is possible. halves: two micro-batches. OUT gets `output`, that of an evaluation after
// the step (`evaluation`), grad/NAME of each parameter and state/NAME of each buffer.
#include <cstdio>
#include <set>
#include <string>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "any_cuts.h"
#include "core/error.h"
#include "graph/layers.h"
#include "storage/safetensors.h"

namespace {

using namespace sluice;  // NOLINT(google-build-using-namespace): a program of a test

using Layers = std::vector<std::unique_ptr<nn::Layer>>;

Layers layers_of(const graph::ArchivePtr& archive, const std::string& cuts, const nn::LayerOptions& options) {
  if (cuts == "blocks") return graph::make_layers(archive, options);
  const std::vector<int> before =
      cuts == "none" ? std::vector<int>() : graph::possible_cuts(archive->program, std::stoi(cuts));
  return graph::make_layers(archive, graph::cut_at(archive->program, before), options);
}

// Returns the first output of the model. gradient: of this output.
at::Tensor train(const Layers& layers, nn::Tensors values, const at::Tensor& gradient, std::int64_t first_sample) {
  nn::ForwardContext context{.training = true};
  context.sample_ids = at::arange(first_sample, first_sample + values.front().size(0), at::kLong);
  std::vector<nn::Tensors> inputs, outputs;
  for (const auto& layer : layers) {
    for (at::Tensor& value : values) {
      if (value.is_floating_point()) value = value.detach().requires_grad_(true);
    }
    inputs.push_back(values);
    outputs.push_back(values = layer->forward_all(values, context));
  }
  nn::Tensors gradients{gradient};
  for (std::size_t l = layers.size(); l-- > 0;) {
    nn::Tensors roots, their;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!outputs[l][i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(outputs[l][i]);
      their.push_back(gradients[i]);
    }
    if (!roots.empty()) torch::autograd::backward(roots, their);
    gradients.clear();
    for (const at::Tensor& input : inputs[l]) gradients.push_back(input.grad());
  }
  return values.front().detach();
}

storage::TensorMap state_of(const Layers& layers) {
  storage::TensorMap out;
  for (const auto& layer : layers) {
    for (const nn::Parameter* parameter : layer->parameters()) {
      if (!parameter->value.grad().defined()) continue;
      at::Tensor& sum = out["grad/" + (parameter->tied_to.empty() ? parameter->name : parameter->tied_to)];
      sum = sum.defined() ? sum + parameter->value.grad() : parameter->value.grad();
    }
    for (const nn::Buffer* buffer : layer->buffers()) out["state/" + buffer->name] = buffer->value;
  }
  return out;
}

at::Tensor evaluate(const Layers& layers, nn::Tensors values) {
  const at::NoGradGuard no_grad;
  const nn::ForwardContext context{.sample_ids = at::arange(values.front().size(0), at::kLong)};
  for (const auto& layer : layers) values = layer->forward_all(values, context);
  return values.front();
}

nn::Tensors rows(const nn::Tensors& tensors, std::int64_t begin, std::int64_t end) {
  nn::Tensors parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.slice(0, begin, end));
  return parts;
}

int run(char** arguments, const std::set<std::string>& words) {
  const auto archive = std::make_shared<const graph::Archive>(graph::read_archive(arguments[1]));
  const storage::TensorMap given = storage::read_safetensors(arguments[2]).tensors;
  const Layers layers = layers_of(archive, arguments[4], {.dtype = words.contains("fp64") ? at::kDouble : at::kFloat});
  nn::Tensors inputs;
  for (const graph::Input& input : archive->program.inputs) {
    if (input.kind == graph::InputKind::kUser) inputs.push_back(given.at(input.name));
  }
  const at::Tensor& gradient = given.at("gradient");
  const std::int64_t samples = inputs.front().size(0), half = words.contains("halves") ? samples / 2 : samples;
  std::vector<at::Tensor> outputs;
  for (std::int64_t begin = 0; begin < samples; begin += half) {
    const std::int64_t end = std::min(begin + half, samples);
    outputs.push_back(train(layers, rows(inputs, begin, end), gradient.slice(0, begin, end), begin));
  }
  storage::TensorMap out = state_of(layers);
  out["output"] = at::cat(outputs);
  if (std::string(arguments[4]) == "blocks") out["evaluation"] = evaluate(layers, inputs);
  storage::write_safetensors(arguments[3], out);
  std::printf("%zu\n", layers.size());
  for (const auto& layer : layers) std::printf("%s\n", layer->name().c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return 2;
  try {
    return run(arguments, {arguments + 5, arguments + count});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
