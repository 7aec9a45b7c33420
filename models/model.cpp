#include "models/model.h"

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "models/families.h"

namespace sluice::models {
namespace {

struct Family {
  const char* name;
  Layers (*make)(const ModelOptions&);
  std::vector<std::string> (*sizes)() = nullptr;            // null: no sizes
  std::vector<std::string> (*stems)() = nullptr;            // null: no choice
  TokenSizes (*tokens)(const std::string& size) = nullptr;  // null: the models take images
  bool has_dropout = false;
  bool has_stochastic_depth = false;

  [[nodiscard]] SampleKind kind() const { return tokens == nullptr ? SampleKind::kImage : SampleKind::kTokens; }
};

constexpr std::array kFamilies{
    Family{.name = "resnet8", .make = make_resnet},
    Family{.name = "resnet18", .make = make_resnet, .stems = resnet_stems},
    Family{.name = "resnet34", .make = make_resnet, .stems = resnet_stems},
    Family{.name = "resnet50", .make = make_resnet, .stems = resnet_stems},
    Family{.name = "resnet101", .make = make_resnet, .stems = resnet_stems},
    Family{.name = "resnet152", .make = make_resnet, .stems = resnet_stems},
    Family{.name = "vgg11", .make = make_vgg, .has_dropout = true},
    Family{.name = "vgg11_bn", .make = make_vgg, .has_dropout = true},
    Family{.name = "vgg13", .make = make_vgg, .has_dropout = true},
    Family{.name = "vgg13_bn", .make = make_vgg, .has_dropout = true},
    Family{.name = "vgg16", .make = make_vgg, .has_dropout = true},
    Family{.name = "vgg16_bn", .make = make_vgg, .has_dropout = true},
    Family{.name = "vgg19", .make = make_vgg, .has_dropout = true},
    Family{.name = "vgg19_bn", .make = make_vgg, .has_dropout = true},
    Family{.name = "convnext", .make = make_convnext, .sizes = convnext_sizes, .has_stochastic_depth = true},
    Family{.name = "vit", .make = make_vit, .sizes = vit_sizes, .has_dropout = true},
    Family{.name = "gpt2", .make = make_gpt2, .sizes = gpt2_sizes, .tokens = gpt2_tokens, .has_dropout = true},
    Family{.name = "mlp", .make = make_mlp, .has_dropout = true},
    Family{.name = "toy_cnn", .make = make_toy_cnn},
};

const Family& find_family(const std::string& name) {
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (family.name == name) return family;
    known.emplace_back(family.name);
  }
  throw ConfigError(
      concat("model.name = \"", name, "\" is unknown", did_you_mean(name, known), " (known: ", join(known, ", "), ")"));
}

void require_at_least_one(const char* key, int value) {
  if (value < 1) throw ConfigError(concat("model.", key, "=", value, " must be at least 1"));
}

void check_word(const char* key, const std::string& word, const Family& family, const std::vector<std::string>& known) {
  if (std::ranges::find(known, word) != known.end()) return;
  throw ConfigError(
      concat("model.", key, "=\"", word, "\" is not a ", key, " of ", family.name, "; use one of ", join(known, ", ")));
}

void check_probability(const char* key, double value, bool has_place, const Family& family) {
  if (!(value >= 0 && value < 1))
    throw ConfigError(concat("model.", key, "=", value, " must be at least 0 and below 1"));
  if (value == 0 || has_place) return;
  throw ConfigError(concat("model.", key, "=", value, " has no place in ", family.name, "; set model.", key, "=0"));
}

void check_images(const ModelOptions& options, const Family& family) {
  require_at_least_one("classes", options.classes);
  require_at_least_one("image_size", options.image_size);
  require_at_least_one("channels", options.channels);
  const auto refuse = [&](const char* key, int value) {
    if (value == 0) return;
    throw ConfigError(
        concat("model.", key, "=", value, " has no place in ", family.name, "; leave model.", key, " out"));
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
  if (family.sizes != nullptr) check_word("size", options.size, family, family.sizes());
  if (family.stems != nullptr) check_word("stem", options.stem, family, family.stems());
  if (family.stems == nullptr && options.stem != ModelSpec().stem) {
    throw ConfigError(
        concat("model.stem=\"", options.stem, "\" has no place in ", family.name, "; leave model.stem out"));
  }
}

}  // namespace

SampleKind kind_of(const std::string& name) { return find_family(name).kind(); }

TokenSizes token_sizes(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  check(family.kind() == SampleKind::kTokens, concat(options.name, " takes no tokens"));
  check_word("size", options.size, family, family.sizes());
  const TokenSizes own = family.tokens(options.size);
  return {options.vocabulary != 0 ? options.vocabulary : own.vocabulary,
          options.context != 0 ? options.context : own.context};
}

namespace {

// What stands behind the last normalisation of the last layer: the classifier. Tied copies are the owner's layer's.
std::vector<std::unique_ptr<nn::Layer>> with_head(std::vector<std::unique_ptr<nn::Layer>> layers) {
  for (nn::Parameter* parameter : layers.back()->parameters())
    parameter->is_head = parameter->role != nn::ParameterRole::kNorm && parameter->tied_to.empty();
  return layers;
}

}  // namespace

Model make_model(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  check_common(options, family);
  if (family.kind() == SampleKind::kImage) {
    return {.layers = with_head(family.make(options)),
            .kind = SampleKind::kImage,
            .sample_shape = {options.channels, options.image_size, options.image_size},
            .classes = options.classes};
  }
  ModelOptions complete = options;
  const TokenSizes sizes = token_sizes(options);
  complete.vocabulary = sizes.vocabulary;
  complete.context = sizes.context;
  return {.layers = with_head(family.make(complete)),
          .kind = SampleKind::kTokens,
          .sample_shape = {sizes.context},
          .classes = sizes.vocabulary};
}

int count_layers(ModelOptions options) {
  options.draw_weights = false;
  return static_cast<int>(make_model(options).layers.size());
}

std::vector<ModelInfo> list_models() {
  std::vector<ModelInfo> all;
  for (const Family& family : kFamilies) {
    const auto sizes = family.sizes == nullptr ? std::vector<std::string>{""} : family.sizes();
    for (const std::string& size : sizes) {
      ModelOptions options;
      options.name = family.name;
      options.size = size;
      options.draw_weights = false;
      ModelInfo info{.name = family.name, .size = size};
      for (const auto& layer : make_model(options).layers) {
        ++info.layers;
        for (const nn::Parameter* parameter : layer->parameters()) {
          if (parameter->tied_to.empty()) info.parameters += parameter->value.numel();
        }
      }
      all.push_back(std::move(info));
    }
  }
  return all;
}

}  // namespace sluice::models
