// foreign_names: the names that torchvision, Hugging Face's transformers and timm give the tensors of models that we
// have, as tables of text. Our own names are torchvision's for CNNs and Hugging Face's for ViT and GPT-2, so only the
// others need a table; timm's ResNets have torchvision's names.
// Not here: tensors (foreign_weights.h). Threads: any; pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sluice::models {

enum class NamesOf { kOurs, kTorchvision, kHuggingFace, kTimm };

// "torchvision's", for messages; "" for kOurs.
[[nodiscard]] std::string in_words(NamesOf source);

// The sources other than ours that have a table for models of this name (ModelSpec::name).
[[nodiscard]] std::vector<NamesOf> foreign_sources(const std::string& model);

// Our names for what `source` calls `name` in a model: several where one tensor there is that many of ours, one below
// the other in its first dimension (query, key and value); none where our models have no use for it (a pooler, a mask).
// Nothing where the table does not know the name. What comes out need not be a tensor of the model, of which only the
// family counts: blocks are numbered without end.
[[nodiscard]] std::optional<std::vector<std::string>> our_names(NamesOf source, const std::string& model,
                                                                const std::string& name);

}  // namespace sluice::models
