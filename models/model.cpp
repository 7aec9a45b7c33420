#include "models/model.h"

#include <algorithm>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "models/family.h"

namespace sluice::models {
namespace {

const Family& find_family(const std::string& name) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.name == name) return family;
    known.push_back(family.name);
  }
  throw ConfigError(
      concat("model.name = \"", name, "\" is unknown; choose one of: ", join(known, ", "), did_you_mean(name, known)));
}

void require_at_least_one(const char* key, int value) {
  if (value < 1) throw ConfigError("model.", key, "=", value, " must be at least 1");
}

void check_word(const char* key, const std::string& word, const Family& family, const std::vector<std::string>& known) {
  if (std::ranges::find(known, word) != known.end()) return;
  throw ConfigError(
      concat("model.", key, "=\"", word, "\" is not a ", key, " of ", family.name, "; use one of ", join(known, ", ")));
}

void check_probability(const char* key, double value, bool is_supported, const Family& family) {
  if (!(value >= 0 && value < 1)) throw ConfigError("model.", key, "=", value, " must be at least 0 and below 1");
  if (value == 0 || is_supported) return;
  throw ConfigError("model.", key, "=", value, " is not supported by ", family.name, "; set model.", key, "=0");
}

void check_images(const ModelOptions& options, const Family& family) {
  require_at_least_one("classes", options.classes);
  require_at_least_one("image_size", options.image_size);
  require_at_least_one("channels", options.channels);
  const auto refuse = [&](const char* key, int value) {
    if (value == 0) return;
    throw ConfigError(
        concat("model.", key, "=", value, " is not supported by ", family.name, "; leave model.", key, " out"));
  };
  refuse("vocabulary", options.vocabulary);
  refuse("context", options.context);
}

void check_tokens(const ModelOptions& options) {
  if (options.vocabulary < 0) require_at_least_one("vocabulary", options.vocabulary);
  if (options.context < 0) require_at_least_one("context", options.context);
}

void check_common(const ModelOptions& options, const Family& family) {
  if (family.kind() == SampleKind::kImage) {
    check_images(options, family);
  } else {
    check_tokens(options);
  }
  check_probability("dropout", options.dropout, family.has_dropout, family);
  check_probability("stochastic_depth", options.stochastic_depth, family.has_stochastic_depth, family);
  if (family.sizes) check_word("size", options.size, family, family.sizes());
  if (family.stems) check_word("stem", options.stem, family, family.stems());
  if (!family.stems && options.stem != ModelSpec().stem) {
    throw ConfigError(
        concat("model.stem=\"", options.stem, "\" is not supported by ", family.name, "; leave model.stem out"));
  }
}

// Marks the parameters after the last normalization as the classifier. Tied copies belong to their owner's layer.
Layers with_marked_classifier(Layers layers) {
  for (nn::Parameter* parameter : layers.back()->parameters())
    parameter->is_classifier = parameter->role != nn::ParameterRole::kNorm && parameter->tied_to.empty();
  return layers;
}

ModelInfo describe(const std::string& name, const std::string& size) {
  ModelOptions options;
  options.name = name;
  options.size = size;
  ModelInfo info{.name = name, .size = size};
  try {
    const Model model = make_without_values(options);
    for (const auto& layer : model.layers) {
      ++info.layers;
      for (const nn::Parameter* parameter : layer->parameters()) {
        if (parameter->tied_to.empty()) info.parameters += parameter->value.numel();
      }
    }
  } catch (const ConfigError&) {  // a user's model that does not take the default images
    return {.name = name, .size = size};
  }
  return info;
}

}  // namespace

ModelConstants own_constants(const std::string& name) { return find_family(name).constants; }

SampleKind kind_of(const std::string& name) { return find_family(name).kind(); }

TokenSizes token_sizes(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  check(family.kind() == SampleKind::kTokens, concat("a model of tokens, not ", options.name));
  check_word("size", options.size, family, family.sizes());
  const TokenSizes own = family.tokens(options.size);
  return {options.vocabulary != 0 ? options.vocabulary : own.vocabulary,
          options.context != 0 ? options.context : own.context};
}

Model make_model(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  check_common(options, family);
  ModelOptions complete = options;
  if (!complete.constants) complete.constants = family.constants;
  if (family.kind() == SampleKind::kImage) {
    return {.layers = with_marked_classifier(family.make(complete)),
            .kind = SampleKind::kImage,
            .sample_shape = {options.channels, options.image_size, options.image_size},
            .classes = options.classes};
  }
  const TokenSizes sizes = token_sizes(options);
  complete.vocabulary = sizes.vocabulary;
  complete.context = sizes.context;
  return {.layers = with_marked_classifier(family.make(complete)),
          .kind = SampleKind::kTokens,
          .sample_shape = {sizes.context},
          .classes = sizes.vocabulary};
}

Model make_without_values(ModelOptions options) {
  options.draw_weights = false;
  return make_model(options);
}

bool has_batch_norms(const ModelOptions& options) {
  const Model model = make_without_values(options);
  return std::ranges::any_of(model.layers, [](const auto& layer) { return !layer->batch_norms().empty(); });
}

std::vector<std::string> layer_names(const Model& model) {
  std::vector<std::string> names;
  for (const auto& layer : model.layers) names.push_back(layer->name());
  return names;
}

int count_layers(const ModelOptions& options) { return static_cast<int>(make_without_values(options).layers.size()); }

std::vector<ModelInfo> list_models() {
  std::vector<ModelInfo> all;
  for (const Family& family : families()) {
    const auto sizes = family.sizes ? family.sizes() : std::vector<std::string>{""};
    for (const std::string& size : sizes) all.push_back(describe(family.name, size));
  }
  return all;
}

}  // namespace sluice::models
