// families: one builder for each family of models here; model.cpp checks what they share and picks one (family.h).
// Each checks its own part of the options and throws ConfigError.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/check.h"
#include "models/family.h"

namespace sluice::models {

Layers make_resnet(const ModelOptions& options);  // resnet8 ... resnet152, by the name
Layers make_vgg(const ModelOptions& options);     // vgg11 ... vgg19_bn, by the name
Layers make_convnext(const ModelOptions& options);
Layers make_vit(const ModelOptions& options);
Layers make_gpt2(const ModelOptions& options);  // after token_sizes(): no 0 in vocabulary and context
Layers make_mlp(const ModelOptions& options);
Layers make_toy_cnn(const ModelOptions& options);

// Of a table of sizes, whose rows have a `name`.
template <typename Sizes>
std::vector<std::string> names_of(const Sizes& sizes) {
  std::vector<std::string> names;
  for (const auto& size : sizes) names.emplace_back(size.name);
  return names;
}
template <typename Sizes>
const auto& size_named(const Sizes& sizes, const std::string& name) {
  const auto found = std::ranges::find_if(sizes, [&](const auto& size) { return size.name == name; });
  check(found != std::ranges::end(sizes), "the size of a model was not checked");
  return *found;
}

std::vector<std::string> resnet_names();          // smallest first
std::vector<std::string> vgg_names();             // smallest first
std::vector<std::string> convnext_sizes();        // smallest first
std::vector<std::string> vit_sizes();             // smallest first
std::vector<std::string> gpt2_sizes();            // smallest first
std::vector<std::string> resnet_stems();          // what model.stem can be
TokenSizes gpt2_tokens(const std::string& size);  // one of gpt2_sizes()
std::int64_t vit_heads(const std::string& size);  // of attention; one of vit_sizes()
std::int64_t gpt2_heads(const std::string& size);

}  // namespace sluice::models
