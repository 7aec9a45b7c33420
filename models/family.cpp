#include "models/family.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "models/families.h"

namespace sluice::models {
namespace {

std::vector<Family>& known_families() {
  static std::vector<Family> all{
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
  return all;
}

}  // namespace

const std::vector<Family>& families() { return known_families(); }

void add_family(Family family) {
  check(static_cast<bool>(family.make), concat("the model ", family.name, " cannot be made: Family::make is empty"));
  check(!family.tokens || family.sizes, concat("the model ", family.name, " of tokens has no Family::sizes"));
  if (family.name.empty()) throw ConfigError("a model without a name was added; set Family::name");
  if (std::ranges::find(families(), family.name, &Family::name) != families().end())
    throw ConfigError(concat("a model \"", family.name, "\" is there already; give yours another name"));
  known_families().push_back(std::move(family));
}

}  // namespace sluice::models
