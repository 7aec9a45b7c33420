// Runs an exported program in parts, with autograd in each part and gradients passed by hand, as stages do.
//
//     graph_run_program FILE INPUTS OUT CUTS [fp64]
//
// INPUTS has the model's inputs by name and `gradient`, that of its first output. CUTS: "blocks", "none" or "K": before
// every K-th node where a cut is possible. OUT gets `output`, grad/NAME of each parameter and state/NAME of each
// buffer.
#include <cstdio>
#include <string>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/error.h"
#include "graph/layers.h"
#include "storage/safetensors.h"

namespace {

using namespace sluice;  // NOLINT(google-build-using-namespace): a program of a test

std::vector<graph::Section> sections_of(const graph::Program& program, const std::string& cuts) {
  if (cuts == "blocks") return graph::cut_into_sections(program);
  if (cuts == "none") return graph::cut_at(program, {});
  return graph::cut_at(program, graph::possible_cuts(program, std::stoi(cuts)));
}

struct Pass {
  std::vector<std::unique_ptr<nn::Layer>> layers;
  std::vector<nn::Tensors> inputs, outputs;  // [layer]

  void forward(nn::Tensors values) {
    nn::ForwardContext context{.training = true};
    context.sample_ids = at::arange(values.front().size(0), at::kLong);
    for (const auto& layer : layers) {
      for (at::Tensor& value : values) {
        if (value.is_floating_point()) value = value.detach().requires_grad_(true);
      }
      inputs.push_back(values);
      outputs.push_back(values = layer->forward_all(values, context));
    }
  }

  void backward(nn::Tensors gradients) const {
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
  }

  [[nodiscard]] storage::TensorMap results() const {
    storage::TensorMap out{{"output", outputs.back().front().detach()}};
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
};

int run(char** arguments, bool is_double) {
  const auto archive = std::make_shared<const graph::Archive>(graph::read_archive(arguments[1]));
  const storage::TensorMap given = storage::read_safetensors(arguments[2]).tensors;
  const at::ScalarType type = is_double ? at::kDouble : at::kFloat;
  Pass pass{.layers = graph::make_layers(archive, sections_of(archive->program, arguments[4]), {.dtype = type})};
  nn::Tensors inputs;
  for (const graph::Input& input : archive->program.inputs) {
    if (input.kind == graph::InputKind::kUser) inputs.push_back(given.at(input.name));
  }
  pass.forward(std::move(inputs));
  pass.backward({given.at("gradient")});
  storage::write_safetensors(arguments[3], pass.results());
  std::printf("%zu\n", pass.layers.size());
  for (const auto& layer : pass.layers) std::printf("%s\n", layer->name().c_str());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return 2;
  try {
    return run(arguments, count > 5);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
