// family: a model that a configuration can name, and the list of all families. A program adds its own models first
// (app/program.h), on one thread, before others start.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/sample_kind.h"
#include "models/model.h"
#include "nn/layer.h"
#include "nn/registry.h"

namespace sluice::models {

using Layers = std::vector<std::unique_ptr<nn::Layer>>;

struct Family {
  std::string name;
  // Creates the ordered list of layers; the last one returns logits. It must apply ModelOptions::draw_weights, and
  // throw ConfigError for impossible options. `constants`, vocabulary and context are set.
  std::function<Layers(const ModelOptions&)> make;
  std::function<std::vector<std::string>()> sizes;            // allowed values of model.size; empty: no choice
  std::function<std::vector<std::string>()> stems;            // allowed values of model.stem; empty: no choice
  std::function<TokenSizes(const std::string& size)> tokens;  // for models that take tokens
  std::function<TextConfig(const std::string& size)> text;    // the same for models that may have a config.json
  std::vector<TextHead> heads;                                // allowed values of model.task, the default first
  // For models from a file (model.file), in place of all of these.
  std::function<FileDescription(const ModelOptions&)> describe;
  ModelConstants constants = {};
  bool has_dropout = false;
  bool has_stochastic_depth = false;

  [[nodiscard]] SampleKind kind(const ModelOptions& options) const {
    if (options.has_own_fields) return SampleKind::kTensors;
    if (describe) return describe(options).kind;
    return tokens || text ? SampleKind::kTokens : SampleKind::kImage;
  }
};

[[nodiscard]] inline nn::LayerOptions layer_options(const ModelOptions& options) {
  return {.seed = options.seed,
          .dtype = options.dtype,
          .draw_weights = options.draw_weights,
          .in_bf16 = options.in_bf16,
          .lora = options.lora};
}

[[nodiscard]] const std::vector<Family>& families();

void add_family(Family family);

}  // namespace sluice::models
