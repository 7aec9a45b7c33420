// foreign_names: maps tensor names of torchvision, Hugging Face's transformers and timm to ours: torchvision's for
// CNNs, Hugging Face's for transformers. timm's ResNets use torchvision's names. Threads: any.
// `model` is model.name, and for a text model its type (text_config.h): "roberta".
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sluice::models {

enum class NamesOf { kOurs, kTorchvision, kHuggingFace, kTimm };

// "torchvision's", for messages; empty for kOurs.
[[nodiscard]] std::string in_words(NamesOf source);

[[nodiscard]] std::vector<NamesOf> foreign_sources(const std::string& model);

// Our names for the tensor `name` of `source`. Several names: the tensor is split along its first dimension. Empty: our
// models do not use it (a pooler, a mask). nullopt: the table does not contain it. The model may lack a returned name,
// because the table does not limit the number of blocks.
[[nodiscard]] std::optional<std::vector<std::string>> our_names(NamesOf source, const std::string& model,
                                                                const std::string& name);

}  // namespace sluice::models
