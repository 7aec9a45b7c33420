// family: a model that a configuration can name, or several sizes of one, and the list of them all. A program with
// models of its own adds them before anything else (app/program.h). Not here: building one (model.h).
// Threads: the list is filled by one thread before others begin, and only read after that.
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
  std::string name;  // model.name
  // The model as an ordered list of layers, the last of which answers with logits. Obeys ModelOptions::draw_weights and
  // throws ConfigError where it cannot be what the options ask for. Tokens: vocabulary and context are given. So are
  // the constants.
  std::function<Layers(const ModelOptions&)> make;
  std::function<std::vector<std::string>()> sizes;            // what model.size can be; empty: there is no choice
  std::function<std::vector<std::string>()> stems;            // likewise model.stem
  std::function<TokenSizes(const std::string& size)> tokens;  // empty: the models take images
  ModelConstants constants = {};                              // with fresh weights; make() is given these or others
  bool has_dropout = false;
  bool has_stochastic_depth = false;

  [[nodiscard]] SampleKind kind() const { return tokens ? SampleKind::kTokens : SampleKind::kImage; }
};

// What each layer of a model needs of its options.
[[nodiscard]] inline nn::LayerOptions layer_options(const ModelOptions& options) {
  return {
      .seed = options.seed, .dtype = options.dtype, .draw_weights = options.draw_weights, .in_bf16 = options.in_bf16};
}

// In the order of `sluice models`.
[[nodiscard]] const std::vector<Family>& families();

// Throws ConfigError where there is one of this name already.
void add_family(Family family);

}  // namespace sluice::models
