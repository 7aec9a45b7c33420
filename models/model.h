// model: creates a model that a configuration can name, on the CPU, as an ordered list of layers. Parameter names are
// torchvision's for CNNs and Hugging Face's for ViT and GPT-2, so state dicts of both load unchanged. Errors:
// ConfigError names the configuration key, its value and what to do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model_spec.h"
#include "core/sample_kind.h"
#include "nn/gelu.h"
#include "nn/layer.h"

namespace sluice::models {

// Constants of a public model's arithmetic that its tensors do not show.
struct ModelConstants {
  double norm_epsilon = 0;  // for layer norms; 0: the model has none
  double last_norm_epsilon = 0;
  nn::GeluForm gelu = nn::GeluForm::kExact;

  bool operator==(const ModelConstants&) const = default;
};

struct ModelOptions : ModelSpec {
  ModelOptions() : ModelOptions({.classes = 10, .channels = 3, .image_size = 32}) {}
  explicit ModelOptions(ModelSpec spec, at::ScalarType type = at::kFloat, std::uint64_t weights_seed = 0)
      : ModelSpec(std::move(spec)), dtype(type), seed(weights_seed) {}

  at::ScalarType dtype;
  std::uint64_t seed;
  bool in_bf16 = false;      // products use bfloat16 (nn/bfloat16.h); dtype is float32
  bool draw_weights = true;  // false: parameters have no values (make_without_values())
  std::optional<ModelConstants> constants;
};

struct Model {
  std::vector<std::unique_ptr<nn::Layer>> layers;
  SampleKind kind = SampleKind::kImage;
  std::vector<std::int64_t> sample_shape;  // one input: [channels, height, width]; for tokens [context], int64
  std::int64_t classes = 0;                // logits are [N, classes]; for tokens [N, T, classes]
};

[[nodiscard]] Model make_model(const ModelOptions& options);

// For names, shapes and counts: fast, because the parameters have no values.
[[nodiscard]] Model make_without_values(ModelOptions options);
// True if a sample's output depends on other samples of its micro-batch.
[[nodiscard]] bool has_batch_norms(const ModelOptions& options);
[[nodiscard]] std::vector<std::string> layer_names(const Model& model);

[[nodiscard]] ModelConstants own_constants(const std::string& name);

// Sample kind of the models of this name. ConfigError if make_model() rejects the name.
[[nodiscard]] SampleKind kind_of(const std::string& name);

struct TokenSizes {
  int vocabulary = 0;
  int context = 0;
};
[[nodiscard]] TokenSizes token_sizes(const ModelOptions& options);

[[nodiscard]] int count_layers(const ModelOptions& options);

struct ModelInfo {
  std::string name;
  std::string size;
  std::int64_t layers = 0;      // 0: cannot be created with default ModelOptions
  std::int64_t parameters = 0;  // number of values with default ModelOptions; tied values count once
};

[[nodiscard]] std::vector<ModelInfo> list_models();

}  // namespace sluice::models
