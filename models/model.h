// model: creates a model that a configuration can name, on the CPU, as an ordered list of layers. Parameter names are
// torchvision's for CNNs and Hugging Face's for transformers, so state dicts of both load unchanged. Errors:
// ConfigError names the configuration key, its value and what to do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model_spec.h"
#include "core/sample_kind.h"
#include "models/text_config.h"
#include "nn/gelu.h"
#include "nn/layer.h"

namespace sluice::nn {
struct LoraOptions;
}

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
  TextConfigPtr text;                           // the content of `config`, which is read if this is null
  std::shared_ptr<const nn::LoraOptions> lora;  // set by make_model() from the keys lora_*
  // Of a model from a file: its fields have the names of forward()'s arguments, not those of a data set of a kind.
  bool has_own_fields = false;
};

// What a text model ends with: logits [N, T, vocabulary] of the next (kLm) or masked (kMlm) token, [N, classes] of the
// text, [N, T, classes] of every token, or [N, T, 2] of an answer's first and last token.
enum class TextHead : std::uint8_t { kLm, kMlm, kClassify, kTokens, kQa };

struct TokenSizes {
  int vocabulary = 0;
  int context = 0;
};

// A tensor of a batch that the first layer or the loss takes.
struct TensorInfo {
  std::string name;
  std::vector<std::int64_t> sizes;  // of the longest sample
  std::int64_t bound = 0;           // int64 values from 0 to bound - 1; 0: any real numbers
  std::int64_t lowest = 0;          // least value without an effect on the cost; for a mask 1, because 0 saves work
  bool is_optional = false;         // may be undefined, or missing at the end of the list
  std::vector<int> open = {};       // dimensions of `sizes` that may be others
  bool is_bound_known = true;       // false: `bound` is a guess that any model takes
};

// Text models take, in this order: `inputs` (tokens), `mask` (0: padding; 1: text; or 1, 2, 3, ... for packed
// documents, which do not see each other), `types` (of BERT's segments; others do not use them), `positions` (from 0 in
// every document). All are [N, T] int64; T may be less than the longest.
struct Model {
  std::vector<std::unique_ptr<nn::Layer>> layers;
  std::vector<TensorInfo> inputs;   // of the first layer
  std::vector<TensorInfo> targets;  // of the usual loss
  std::int64_t classes = 0;         // last size of the logits
};

// With lora_rank above 0, only adapters and trained_head() (lora.h) require a gradient.
[[nodiscard]] Model make_model(const ModelOptions& options);

// What the file of a model says of it.
struct FileDescription {
  SampleKind kind = SampleKind::kImage;  // of data sets that suit the model
  std::vector<TensorInfo> inputs;        // in the order of forward()'s arguments
  TextHead head = TextHead::kClassify;
  std::int64_t classes = 0;  // of the logits; 0: the model gives its loss
  bool is_map = false;       // logits are [n, classes, places...], not [n, places..., classes]
  int channels = 0, image_size = 0;
  TokenSizes tokens;
  // The targets of the usual loss. A model that returns its loss, the mean over its targets, has those that it counts.
  std::vector<TensorInfo> targets;
  std::function<std::int64_t(const nn::Tensors& targets)> count_targets;  // of a model that returns its loss
};
// ConfigError if keys say otherwise than the file.
void check_file_keys(const ModelOptions& options, const FileDescription& file);
// Nothing for a model that the keys of [model] describe alone.
[[nodiscard]] std::optional<FileDescription> description_of(const ModelOptions& options);

// For names, shapes and counts: fast, because the parameters have no values.
[[nodiscard]] Model make_without_values(ModelOptions options);
// True if a sample's output depends on other samples of its micro-batch.
[[nodiscard]] bool has_batch_norms(const ModelOptions& options);
[[nodiscard]] std::vector<std::string> layer_names(const Model& model);

[[nodiscard]] ModelConstants own_constants(const std::string& name);
// The same, but by `config` if the model has one.
[[nodiscard]] ModelConstants own_constants(const ModelOptions& options);

// The configuration of a text model with all options applied: sizes, constants, dropout. ConfigError if they do not
// fit.
[[nodiscard]] TextConfig text_config(const ModelOptions& options);
[[nodiscard]] TextHead text_head(const ModelOptions& options);
[[nodiscard]] bool is_text(const ModelOptions& options);  // of a family with a config.json

// ConfigError if make_model() rejects the name.
[[nodiscard]] SampleKind kind_of(const ModelOptions& options);

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
