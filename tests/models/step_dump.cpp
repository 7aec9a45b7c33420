// step_dump MODEL SIZE STEM fp32|fp64 FILE: writes inputs and results of one forward and backward pass on random
// samples as safetensors, for compare_with_torch.py. Batch norms get weights and buffers that differ from their initial
// values.
// step_dump names MODEL SIZE STEM: "NAME [SHAPE] ROLE" of every parameter and buffer, as for ImageNet, for
// public_names_test.py.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "core/concat.h"
#include "models/model.h"
#include "safetensors_out.h"

namespace {

using sluice::models::Tensors;

void leave_initial_values(sluice::models::Model& model) {
  const c10::AutoGradMode no_grad(false);
  for (const auto& layer : model.layers) {
    for (auto* p : layer->parameters()) p->value.add_(at::randn_like(p->value), 0.05);
    for (auto* b : layer->buffers()) {
      if (b->value.is_floating_point()) b->value.add_(at::rand_like(b->value));
    }
  }
}

// Tokens: fewer than the model has positions, with some masked targets.
void fill_batch(const sluice::models::Model& model, at::ScalarType type, std::int64_t samples, Tensors& all) {
  std::vector<std::int64_t> sizes = model.inputs.front().sizes;
  sizes.insert(sizes.begin(), samples);
  if (model.inputs.front().bound == 0) {
    all["inputs"] = at::randn(sizes, type);
    all["targets"] = at::randint(0, model.classes, {samples}, at::kLong);
    return;
  }
  sizes.back() -= 3;
  all["inputs"] = at::randint(0, model.classes, sizes, at::kLong);
  all["targets"] = at::randint(0, model.classes, sizes, at::kLong).masked_fill(at::rand(sizes) < 0.2, -100);
}

Tensors run(const sluice::models::ModelOptions& options) {
  auto model = make_model(options);
  leave_initial_values(model);
  Tensors all;
  for (const auto& layer : model.layers) {
    for (const auto* p : layer->parameters()) all["weight/" + p->name] = p->value;
    for (const auto* b : layer->buffers()) all["buffer/" + b->name] = b->value.clone();
  }
  constexpr std::int64_t kBatch = 6;
  fill_batch(model, options.dtype, kBatch, all);
  at::Tensor x = all["inputs"];
  for (const auto& layer : model.layers) x = layer->forward(x, {.training = true, .sample_ids = at::arange(kBatch)});
  const at::Tensor loss = at::cross_entropy_loss(x.flatten(0, -2), all["targets"].flatten());
  loss.backward();
  all["logits"] = x;
  all["loss"] = loss;
  for (const auto& layer : model.layers) {
    for (const auto* p : layer->parameters()) all["grad/" + p->name] = p->value.grad();
    for (const auto* b : layer->buffers()) all["buffer_after/" + b->name] = b->value;
  }
  return all;
}

std::string role_of(const sluice::nn::Parameter& parameter) {
  constexpr std::array kRoles{"weight", "bias", "norm", "position"};
  return sluice::concat(parameter.is_classifier ? " head " : " ", kRoles.at(static_cast<std::size_t>(parameter.role)));
}

void print_names(const char* name, const char* size, const char* stem) {
  sluice::models::ModelOptions options;
  options.name = name;
  options.size = size;
  options.stem = stem;
  options.classes = 1000;
  options.image_size = 224;
  options.patch_size = 16;
  options.draw_weights = false;
  const auto print = [](const auto& named, const std::string& role) {
    std::string sizes;
    for (const auto size : named.value.sizes()) sizes += sluice::concat(sizes.empty() ? "" : ", ", size);
    std::printf("%s [%s]%s\n", named.name.c_str(), sizes.c_str(), role.c_str());
  };
  for (const auto& layer : make_model(options).layers) {
    for (const auto* p : layer->parameters()) print(*p, role_of(*p));
    for (const auto* b : layer->buffers()) print(*b, "");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 5 && std::string(argv[1]) == "names") {
    print_names(argv[2], argv[3], argv[4]);
    return 0;
  }
  if (argc != 6) throw std::runtime_error("usage: step_dump MODEL SIZE STEM fp32|fp64 FILE");
  at::set_num_threads(1);
  // With seed 0 an activation of toy_cnn is 2e-8, so its side of ReLU depends on rounding and the CPU.
  at::manual_seed(1);
  sluice::models::ModelOptions options;
  options.name = argv[1];
  options.size = argv[2];
  options.stem = argv[3];
  options.dtype = std::string(argv[4]) == "fp64" ? at::kDouble : at::kFloat;
  sluice::models::write_safetensors(run(options), argv[5]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "step_dump: %s\n", error.what());
  return 2;
}
