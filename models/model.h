// model: the models that a configuration can name, each as an ordered list of layers (the units of cutting).
// Not here: what a layer computes (src/nn/), reading weights, devices. Models come out on the CPU.
// Names of parameters: torchvision's for CNNs, Hugging Face's for ViT and GPT-2, so that state dicts of both load as
// they are. Errors: ConfigError names the key of the configuration, its value and what to do.
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

// What the arithmetic of a public model fixes and its tensors do not show.
struct ModelConstants {
  double norm_epsilon = 0;       // of the layer-norms; 0: the model has none
  double last_norm_epsilon = 0;  // of the layer-norm before the classifier
  nn::GeluForm gelu = nn::GeluForm::kExact;

  bool operator==(const ModelConstants&) const = default;
};

struct ModelOptions : ModelSpec {
  // For 10 classes and images of 32 x 32 pixels in 3 channels. Models without a choice of stem take only the default.
  ModelOptions() : ModelOptions({.classes = 10, .channels = 3, .image_size = 32}) {}
  explicit ModelOptions(ModelSpec spec, at::ScalarType type = at::kFloat, std::uint64_t weights_seed = 0)
      : ModelSpec(std::move(spec)), dtype(type), seed(weights_seed) {}

  at::ScalarType dtype;  // of parameters
  std::uint64_t seed;
  bool in_bf16 = false;                     // products take and give bfloat16 (nn/bfloat16.h); dtype is float32
  bool draw_weights = true;                 // false: the parameters have no values (make_without_values())
  std::optional<ModelConstants> constants;  // nothing: own_constants()
};

struct Model {
  std::vector<std::unique_ptr<nn::Layer>> layers;
  SampleKind kind = SampleKind::kImage;
  std::vector<std::int64_t> sample_shape;  // of one input: [channels, height, width]; [context] int64 of tokens
  std::int64_t classes = 0;  // the last layer answers with logits [N, classes]; [N, T, classes], the tokens, of tokens
};

[[nodiscard]] Model make_model(const ModelOptions& options);

// The same for names, shapes and counts: quick, because its parameters have no values.
[[nodiscard]] Model make_without_values(ModelOptions options);
// Whether a sample's answer depends on what else is in its micro-batch.
[[nodiscard]] bool has_batch_norms(const ModelOptions& options);
// [layer]
[[nodiscard]] std::vector<std::string> layer_names(const Model& model);

// Constants of a model that begins with fresh weights.
[[nodiscard]] ModelConstants own_constants(const std::string& name);

// What the models of this name take. ConfigError for a name that make_model() refuses.
[[nodiscard]] SampleKind kind_of(const std::string& name);

struct TokenSizes {
  int vocabulary = 0;  // tokens
  int context = 0;     // positions
};
// Of a model of tokens: as asked for, or the size's own.
[[nodiscard]] TokenSizes token_sizes(const ModelOptions& options);

// The layers that make_model() gives, without drawing weights.
[[nodiscard]] int count_layers(const ModelOptions& options);

struct ModelInfo {
  std::string name;
  std::string size;             // empty for families without sizes
  std::int64_t layers = 0;      // 0: it cannot be made with ModelOptions' defaults
  std::int64_t parameters = 0;  // values, tied ones once, with ModelOptions' defaults otherwise
};

// For `sluice models`: every name and size that make_model() takes.
[[nodiscard]] std::vector<ModelInfo> list_models();

}  // namespace sluice::models
