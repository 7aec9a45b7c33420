// lora: which layers of a model have adapters (nn/lora.h), and what is trained with them: the adapters and, as in peft,
// the head of a classifier or of question answering. Everything else is frozen. Threads: any.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "models/model.h"
#include "nn/lora.h"

namespace sluice::models {

using NamedTensors = std::map<std::string, at::Tensor>;
using LayerList = std::vector<std::unique_ptr<nn::Layer>>;

inline constexpr const char* kAllLinear = "all-linear";  // in lora_targets: every linear layer outside of the head

// Resolves the keys lora_*. ConfigError for a layer that does not exist and for a rank that is too large.
[[nodiscard]] std::shared_ptr<const nn::LoraOptions> lora_options(const ModelOptions& options);

void freeze_below_adapters(const ModelOptions& options, const LayerList& layers);

// Names of the parameters that are trained besides the adapters. Empty for a language model.
[[nodiscard]] std::set<std::string> trained_head(const ModelOptions& options, const LayerList& layers);

[[nodiscard]] bool is_adapter(const std::string& parameter);

// The endings of names in lora_targets, or those that are usual for the model. Empty if there are none.
[[nodiscard]] std::vector<std::string> lora_targets(const ModelOptions& options);

// The same model without adapters: weight + scale b a. Requires: tensors by our names, with all adapters.
[[nodiscard]] NamedTensors merge_adapters(const ModelOptions& options, NamedTensors tensors);

}  // namespace sluice::models
