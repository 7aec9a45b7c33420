// families: one builder per model family (family.h), which checks its own options. Errors: ConfigError.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/check.h"
#include "models/family.h"

namespace sluice::models {

Layers make_resnet(const ModelOptions& options);  // resnet8 ... resnet152, by name
Layers make_vgg(const ModelOptions& options);     // vgg11 ... vgg19_bn, by name
Layers make_convnext(const ModelOptions& options);
Layers make_vit(const ModelOptions& options);
Layers make_bert(const ModelOptions& options);
Layers make_llama(const ModelOptions& options);
Layers make_gpt2(const ModelOptions& options);
Layers make_mlp(const ModelOptions& options);
Layers make_toy_cnn(const ModelOptions& options);

template <typename Sizes>
std::vector<std::string> names_of(const Sizes& sizes) {
  std::vector<std::string> names;
  for (const auto& size : sizes) names.emplace_back(size.name);
  return names;
}
template <typename Sizes>
const auto& size_named(const Sizes& sizes, const std::string& name) {
  const auto found = std::ranges::find_if(sizes, [&](const auto& size) { return size.name == name; });
  check(found != std::ranges::end(sizes), "a model size that was checked before");
  return *found;
}

std::vector<std::string> resnet_names();  // all lists of names: smallest first
std::vector<std::string> vgg_names();
std::vector<std::string> convnext_sizes();
std::vector<std::string> vit_sizes();
std::vector<std::string> bert_sizes();
std::vector<std::string> llama_sizes();
std::vector<std::string> gpt2_sizes();
std::vector<std::string> resnet_stems();          // allowed values of model.stem
std::int64_t vit_heads(const std::string& size);  // attention heads; size: one of vit_sizes()
TextConfig bert_size(const std::string& size);
TextConfig llama_size(const std::string& size);
TextConfig gpt2_size(const std::string& size);

}  // namespace sluice::models
