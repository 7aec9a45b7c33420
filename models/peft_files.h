// peft_files: adapters as Hugging Face's peft saves them: tensors of adapter_model.safetensors and the content of
// adapter_config.json. Threads: any.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "models/lora.h"

namespace sluice::models {

// What the model trains, under peft's names.
[[nodiscard]] NamedTensors peft_tensors(const ModelOptions& options, const NamedTensors& model);

// base: folder or name of the weights below the adapters; may be empty.
[[nodiscard]] std::string peft_config(const ModelOptions& options, const std::string& base);

// Renames the tensors of a file. config: its adapter_config.json. CheckpointError if the adapters are of a kind that
// this model does not have, or the keys lora_* differ. source: the folder, for messages.
[[nodiscard]] NamedTensors from_peft(const ModelOptions& options, const NamedTensors& file,
                                     const nlohmann::json& config, const std::string& source);

}  // namespace sluice::models
