#include "models/lora.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::models {
namespace {

// Targets of peft's LoraConfig by default. It has none for DistilBERT; these are the same layers as BERT's.
std::vector<std::string> usual_targets(TextType type) {
  switch (type) {
    case TextType::kBert:
    case TextType::kRoberta: return {"query", "value"};
    case TextType::kDistilbert: return {"q_lin", "v_lin"};
    case TextType::kLlama:
    case TextType::kMistral:
    case TextType::kQwen2: return {"q_proj", "v_proj"};
    case TextType::kGpt2: return {"c_attn"};
  }
  return {};
}

Model without_adapters(ModelOptions options) {
  options.lora_rank = 0;
  return make_without_values(std::move(options));
}

std::vector<nn::LinearInfo> linears_in(const LayerList& layers) {
  std::vector<nn::LinearInfo> all;
  for (const auto& layer : layers) std::ranges::copy(layer->linears(), std::back_inserter(all));
  return all;
}

// As peft does: a target is a whole name, or its last parts.
bool is_target(const std::string& target, const std::string& name) {
  return target == kAllLinear || name == target || name.ends_with("." + target);
}

std::vector<std::string> last_parts(const std::vector<nn::LinearInfo>& linears) {
  std::vector<std::string> parts;
  for (const nn::LinearInfo& linear : linears) {
    std::string part = linear.name.substr(linear.name.rfind('.') + 1);
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
  }
  return parts;
}

void check_rank(int rank, const nn::LinearInfo& linear) {
  const std::int64_t most = std::min(linear.in, linear.out);
  if (rank <= most) return;
  throw ConfigError("model.lora_rank = ", rank, " is larger than the layer ", linear.name, ", which is ", linear.out,
                    " x ", linear.in, "; set it to ", most, " or less");
}

std::vector<nn::LinearInfo> layers_of_target(const std::string& target, const std::vector<nn::LinearInfo>& linears,
                                             const std::string& model) {
  std::vector<nn::LinearInfo> found;
  const auto matches = [&](const nn::LinearInfo& linear) { return is_target(target, linear.name); };
  std::ranges::copy_if(linears, std::back_inserter(found), matches);
  if (!found.empty()) return found;
  const std::vector<std::string> parts = last_parts(linears);
  throw ConfigError("model.lora_targets has \"", target, "\", but ", model,
                    " has no such linear layer; use some of: ", join(parts, ", "), ", ", kAllLinear,
                    did_you_mean(target, parts));
}

at::Tensor taken(NamedTensors& tensors, const std::string& name) {
  const auto node = tensors.extract(name);
  if (node.empty()) throw CheckpointError("the weights have no tensor '", name, "'; use a checkpoint with adapters");
  return node.mapped().to(at::kDouble);
}

}  // namespace

bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight");
}

std::vector<std::string> lora_targets(const ModelOptions& options) {
  if (!options.lora_targets.empty() || !is_text(options)) return options.lora_targets;
  return usual_targets(text_config(options).type);
}

std::set<std::string> trained_head(const ModelOptions& options, const LayerList& layers) {
  constexpr std::array<std::string_view, 4> kModules{"classifier", "score", "qa_outputs", "pre_classifier"};
  std::set<std::string> names;
  if (!is_text(options) && kind_of(options) == SampleKind::kTokens) return names;
  for (const nn::Parameter* parameter : layers.back()->parameters()) {
    const std::string_view module = std::string_view(parameter->name).substr(0, parameter->name.find('.'));
    const bool is_trained =
        is_text(options) ? std::ranges::find(kModules, module) != kModules.end() : parameter->is_classifier;
    if (is_trained) names.insert(parameter->name);
  }
  return names;
}

std::shared_ptr<const nn::LoraOptions> lora_options(const ModelOptions& options) {
  const Model model = without_adapters(options);
  const std::set<std::string> head = trained_head(options, model.layers);
  std::vector<nn::LinearInfo> linears = linears_in(model.layers);
  std::erase_if(linears, [&](const nn::LinearInfo& linear) { return head.contains(linear.name + ".weight"); });
  if (linears.empty()) {
    throw ConfigError("model.lora_rank = ", options.lora_rank, ", but ", options.name,
                      " has no linear layer besides its head; set model.lora_rank = 0");
  }
  const std::vector<std::string> targets = lora_targets(options);
  if (targets.empty()) {
    throw ConfigError("model.lora_rank is set, but ", options.name,
                      " has no usual layers for adapters; set model.lora_targets to some of: ",
                      join(last_parts(linears), ", "), ", ", kAllLinear);
  }
  auto lora = std::make_shared<nn::LoraOptions>();
  lora->rank = options.lora_rank;
  lora->scale = options.lora_alpha / options.lora_rank;
  lora->dropout = options.lora_dropout;
  for (const std::string& target : targets) {
    for (const nn::LinearInfo& linear : layers_of_target(target, linears, options.name)) {
      check_rank(options.lora_rank, linear);
      lora->layers.insert(linear.name);
    }
  }
  return lora;
}

void freeze_below_adapters(const ModelOptions& options, const LayerList& layers) {
  const std::set<std::string> head = trained_head(options, layers);
  for (const auto& layer : layers) {
    for (nn::Parameter* parameter : layer->parameters())
      parameter->value.requires_grad_(is_adapter(parameter->name) || head.contains(parameter->name));
  }
}

NamedTensors merge_adapters(const ModelOptions& options, NamedTensors tensors) {
  const auto lora = lora_options(options);
  for (const nn::LinearInfo& linear : linears_in(without_adapters(options).layers)) {
    if (!lora->layers.contains(linear.name)) continue;
    at::Tensor& weight = tensors.at(linear.name + ".weight");
    const at::Tensor a = taken(tensors, linear.name + ".lora_A.weight"),
                     b = taken(tensors, linear.name + ".lora_B.weight");
    const at::Tensor change = at::mm(b, a).mul_(lora->scale);
    weight = weight.to(at::kDouble).add(linear.is_transposed ? change.t() : change).to(weight.scalar_type());
  }
  return tensors;
}

}  // namespace sluice::models
