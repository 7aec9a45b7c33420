#include "models/family.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "models/families.h"

namespace sluice::models {
namespace {

std::vector<Family> own_families() {
  std::vector<Family> all;
  for (const std::string& name : resnet_names()) all.push_back({.name = name, .make = make_resnet});
  for (std::size_t i = 1; i < all.size(); ++i) all[i].stems = resnet_stems;  // resnet8 has a single stem
  for (const std::string& name : vgg_names()) all.push_back({.name = name, .make = make_vgg, .has_dropout = true});
  const std::vector<Family> others{
      {.name = "convnext",
       .make = make_convnext,
       .sizes = convnext_sizes,
       .constants = {.norm_epsilon = 1e-6, .last_norm_epsilon = 1e-6},
       .has_stochastic_depth = true},
      {.name = "vit",
       .make = make_vit,
       .sizes = vit_sizes,
       .constants = {.norm_epsilon = 1e-6, .last_norm_epsilon = 1e-6},
       .has_dropout = true},
      {.name = "gpt2",
       .make = make_gpt2,
       .sizes = gpt2_sizes,
       .text = gpt2_size,
       .heads = {TextHead::kLm, TextHead::kClassify},
       .constants = {.norm_epsilon = 1e-5, .last_norm_epsilon = 1e-5, .gelu = nn::GeluForm::kTanh},
       .has_dropout = true},
      {.name = "bert",
       .make = make_bert,
       .sizes = bert_sizes,
       .text = bert_size,
       .heads = {TextHead::kMlm, TextHead::kClassify, TextHead::kTokens, TextHead::kQa},
       .constants = {.norm_epsilon = 1e-12, .last_norm_epsilon = 1e-12},
       .has_dropout = true},
      {.name = "llama",
       .make = make_llama,
       .sizes = llama_sizes,
       .text = llama_size,
       .heads = {TextHead::kLm, TextHead::kClassify},
       .constants = {.norm_epsilon = 1e-5, .last_norm_epsilon = 1e-5},
       .has_dropout = true},
      {.name = "mlp", .make = make_mlp, .has_dropout = true},
      {.name = "toy_cnn", .make = make_toy_cnn},
  };
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::vector<Family>& known_families() {
  static std::vector<Family> all = own_families();
  return all;
}

}  // namespace

const std::vector<Family>& families() { return known_families(); }

void add_family(Family family) {
  check(static_cast<bool>(family.make), concat("Family::make for the model ", family.name));
  check(!family.tokens || family.sizes, concat("Family::sizes for the token model ", family.name));
  if (family.name.empty()) throw ConfigError("a model without a name was added; set Family::name");
  if (std::ranges::find(families(), family.name, &Family::name) != families().end())
    throw ConfigError("a model \"", family.name, "\" already exists; give yours another name");
  known_families().push_back(std::move(family));
}

}  // namespace sluice::models
