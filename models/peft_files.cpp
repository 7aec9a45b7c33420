#include "models/peft_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "models/foreign_weights.h"

namespace sluice::models {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "base_model.model.";

json task_type(const ModelOptions& options) {
  if (!is_text(options)) return nullptr;
  switch (text_head(options)) {
    case TextHead::kLm: return "CAUSAL_LM";
    case TextHead::kClassify: return "SEQ_CLS";
    case TextHead::kTokens: return "TOKEN_CLS";
    case TextHead::kQa: return "QUESTION_ANS";
    case TextHead::kMlm: break;
  }
  return nullptr;
}

// Modules whose parameters are all trained; null if there are none.
json modules_to_save(const ModelOptions& options) {
  std::set<std::string> modules;
  for (const std::string& name : trained_head(options, make_without_values(options).layers))
    modules.insert(name.substr(0, is_text(options) ? name.find('.') : name.rfind('.')));
  return modules.empty() ? json() : json(modules);
}

json target_modules(const ModelOptions& options, const nn::LoraOptions& lora) {
  const std::vector<std::string> targets = lora_targets(options);
  if (std::ranges::find(targets, kAllLinear) != targets.end()) return lora.layers;
  return targets;
}

bool has_transposed_weights(const ModelOptions& options, const nn::LoraOptions& lora) {
  for (const auto& layer : make_without_values(options).layers) {
    for (const nn::LinearInfo& linear : layer->linears())
      if (linear.is_transposed && lora.layers.contains(linear.name)) return true;
  }
  return false;
}

void check_number(const json& config, const char* field, const char* key, double own, const std::string& source) {
  const json value = config.value(field, json());
  if (value.is_number() && value.get<double>() == own) return;
  throw CheckpointError(
      source, ": adapter_config.json has ", field, " = ", value.dump(), ", but model.", key, " = ", own,
      value.is_number() ? concat("; set model.", key, " = ", value.dump()) : std::string("; correct the file"));
}

// Kinds of adapters that compute otherwise. A field that is missing, null, false or empty is not in use.
void refuse_other_adapters(const json& config, const std::string& source) {
  const auto refuse = [&](const std::string& field, const json& value) {
    throw CheckpointError(source, ": adapter_config.json has ", field, " = ", value.dump(),
                          ", which is not supported; take an adapter of plain LoRA");
  };
  if (const json type = config.value("peft_type", json()); type != "LORA") refuse("peft_type", type);
  constexpr std::array kPlainStarts{"gaussian", "eva", "orthogonal"};  // others change the weights below
  if (const json start = config.value("init_lora_weights", json());
      start.is_string() && std::ranges::find(kPlainStarts, start.get<std::string>()) == kPlainStarts.end())
    refuse("init_lora_weights", start);
  if (const json bias = config.value("bias", json("none")); bias != "none") refuse("bias", bias);
  for (const char* field : {"use_dora", "use_rslora", "use_qalora", "use_bdlora", "lora_bias", "rank_pattern",
                            "alpha_pattern", "layer_replication", "target_parameters", "trainable_token_indices",
                            "alora_invocation_tokens", "arrow_config"}) {
    const json value = config.value(field, json());
    const bool is_used = !value.is_null() && value != false && !(value.is_structured() && value.empty());
    if (is_used) refuse(field, value);
  }
}

}  // namespace

NamedTensors peft_tensors(const ModelOptions& options, const NamedTensors& model) {
  NamedTensors tensors;
  for (const auto& layer : make_without_values(options).layers) {
    for (const nn::Parameter* parameter : layer->parameters()) {
      if (parameter->value.requires_grad()) tensors[concat(kPrefix, parameter->name)] = model.at(parameter->name);
    }
  }
  return tensors;
}

std::string peft_config(const ModelOptions& options, const std::string& base) {
  const auto lora = lora_options(options);
  const bool is_whole = options.lora_alpha == std::floor(options.lora_alpha);
  const json alpha = is_whole ? json(static_cast<std::int64_t>(options.lora_alpha)) : json(options.lora_alpha);
  const json config{{"peft_type", "LORA"},
                    {"task_type", task_type(options)},
                    {"base_model_name_or_path", base.empty() ? json() : json(base)},
                    {"r", options.lora_rank},
                    {"lora_alpha", alpha},
                    {"lora_dropout", options.lora_dropout},
                    {"target_modules", target_modules(options, *lora)},
                    {"modules_to_save", modules_to_save(options)},
                    {"fan_in_fan_out", has_transposed_weights(options, *lora)},
                    {"bias", "none"},
                    {"inference_mode", true}};
  return config.dump(2) + "\n";
}

NamedTensors from_peft(const ModelOptions& options, const NamedTensors& file, const json& config,
                       const std::string& source) {
  if (!config.is_object()) {
    throw CheckpointError(source,
                          " has no adapter_config.json, or it holds no JSON object; name a folder that peft or "
                          "Sluice has saved");
  }
  refuse_other_adapters(config, source);
  check_number(config, "r", "lora_rank", options.lora_rank, source);
  check_number(config, "lora_alpha", "lora_alpha", options.lora_alpha, source);
  NamedTensors tensors;
  for (const auto& [name, tensor] : file) {
    if (!name.starts_with(kPrefix)) {
      throw CheckpointError(source, ": tensor '", name, "' does not begin with '", kPrefix,
                            "', so this is no adapter of peft; name a folder that peft or Sluice has saved");
    }
    tensors[name.substr(kPrefix.size())] = tensor;
  }
  return to_our_names(options, std::move(tensors), source).tensors;
}

}  // namespace sluice::models
