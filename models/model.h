// model: the models that a configuration can name, each as an ordered list of layers (the units of cutting).
// Not here: what a layer computes (src/nn/), reading weights, devices. Models come out on the CPU.
// Names of parameters: torchvision's for CNNs, Hugging Face's for ViT, so that state dicts of both load as they are.
// Errors: ConfigError names the key of the configuration, its value and what to do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/layer.h"

namespace sluice::models {

struct ModelOptions {
  std::string name = "resnet8";
  std::string size = "tiny";  // only families that have sizes read it
  int classes = 10;
  int image_size = 32;         // pixels; images are square
  int patch_size = 4;          // pixels; vit
  std::string stem = "cifar";  // resnet18: "cifar" or "imagenet"; models without a choice of stem take only the default
  int channels = 3;
  double dropout = 0;
  at::ScalarType dtype = at::kFloat;
  std::uint64_t seed = 0;
  bool draw_weights = true;  // false: quick, for names, shapes and counts; the parameters have no values
};

struct Model {
  std::vector<std::unique_ptr<nn::Layer>> layers;
  std::vector<std::int64_t> sample_shape;  // [channels, height, width] of one input
  std::int64_t classes = 0;                // the last layer answers with logits [N, classes]
};

[[nodiscard]] Model make_model(const ModelOptions& options);

// The layers that make_model() gives, without drawing weights.
[[nodiscard]] int count_layers(ModelOptions options);

struct ModelInfo {
  std::string name;
  std::string size;  // empty for families without sizes
  std::int64_t layers = 0;
  std::int64_t parameters = 0;  // values, with ModelOptions' defaults otherwise
};

// For `sluice models`: every name and size that make_model() takes.
[[nodiscard]] std::vector<ModelInfo> list_models();

}  // namespace sluice::models
