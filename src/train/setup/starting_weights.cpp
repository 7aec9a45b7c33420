#include "train/setup/starting_weights.h"

#include <algorithm>
#include <system_error>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "engine/state.h"
#include "models/foreign_weights.h"
#include "models/freeze_points.h"
#include "models/peft_files.h"
#include "storage/weights_files.h"

namespace sluice::train {
namespace {

// A parameter or buffer of the head, and how much one more class adds to each of its sizes.
struct HeadTensor {
  std::string name;
  at::Tensor value;  // has sizes only
  std::vector<std::int64_t> growth;

  [[nodiscard]] bool has_classes() const {
    return std::ranges::any_of(growth, [](std::int64_t more) { return more != 0; });
  }
};

struct HeadPart {
  std::string name;
  std::vector<HeadTensor> tensors;
  bool is_tied = false;  // to a layer of the body
};

struct Head {
  std::vector<HeadPart> parts;
  std::int64_t classes = 0;
};

std::vector<std::int64_t> growth_between(const at::Tensor& larger, const at::Tensor& smaller) {
  std::vector<std::int64_t> sizes = larger.sizes().vec();
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] -= smaller.size(static_cast<std::int64_t>(i));
  return sizes;
}

HeadPart& part_of(Head& head, const std::string& tensor) {
  const std::string name = tensor.substr(0, tensor.rfind('.'));
  const auto known = std::ranges::find(head.parts, name, &HeadPart::name);
  return known != head.parts.end() ? *known : head.parts.emplace_back(HeadPart{.name = name});
}

void add_layer(Head& head, nn::Layer& layer, nn::Layer& wider) {
  const auto add = [&head](const auto& mine, const auto& theirs) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (models::is_adapter(mine[i]->name)) continue;
      part_of(head, mine[i]->name)
          .tensors.push_back({mine[i]->name, mine[i]->value, growth_between(theirs[i]->value, mine[i]->value)});
    }
  };
  add(layer.parameters(), wider.parameters());
  add(layer.buffers(), wider.buffers());
  for (const nn::Parameter* parameter : layer.parameters()) {
    if (!parameter->tied_to.empty()) part_of(head, parameter->name).is_tied = true;
  }
}

// Returns no parts if the model consists of a head only: such a model has no starting weights.
Head head_of(models::ModelOptions options) {
  const models::Model model = models::make_without_values(options);
  if (options.file.empty()) ++options.classes;  // no effect on a token model, which has no classes
  const models::Model wider = models::make_without_values(options);
  const std::vector<std::string> names = models::layer_names(model);
  const int first = models::freeze_points(names, models::FreezeUnit::kBlock).back();
  Head head{.classes = model.classes};
  for (std::size_t i = first; first > 0 && i < names.size(); ++i) add_layer(head, *model.layers[i], *wider.layers[i]);
  return head;
}

// Classes by the first tensor in the file whose shape shows them; by default the model's own.
std::int64_t classes_in(const storage::TensorMap& file, const Head& head) {
  for (const HeadPart& part : head.parts) {
    for (const auto& [name, value, growth] : part.tensors) {
      const auto found = file.find(name);
      if (found == file.end() || found->second.dim() != value.dim()) continue;
      for (std::int64_t i = 0; i < value.dim(); ++i) {
        if (growth[i] != 0) return head.classes + (found->second.size(i) - value.size(i)) / growth[i];
      }
    }
  }
  return head.classes;
}

bool is_of_wider(const at::Tensor& found, const HeadTensor& tensor, std::int64_t more) {
  if (found.is_floating_point() != tensor.value.is_floating_point()) return false;
  std::vector<std::int64_t> sizes = tensor.value.sizes().vec();
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] += more * tensor.growth[i];
  return found.sizes() == at::IntArrayRef(sizes);
}

bool is_of_wider(const storage::TensorMap& file, const HeadPart& part, std::int64_t more) {
  return std::ranges::any_of(part.tensors, &HeadTensor::has_classes) &&
         std::ranges::all_of(part.tensors, [&](const HeadTensor& tensor) {
           const auto found = file.find(tensor.name);
           return found != file.end() && is_of_wider(found->second, tensor, more);
         });
}

// A tied tensor belongs to the body, so it is never lacking.
bool is_lacking(const storage::TensorMap& file, const HeadPart& part) {
  return !part.is_tied &&
         std::ranges::none_of(part.tensors, [&](const HeadTensor& tensor) { return file.contains(tensor.name); });
}

void leave_fresh(const HeadPart& part, StartingWeights& weights, std::vector<std::string>& fresh) {
  for (const HeadTensor& tensor : part.tensors) fresh.push_back(tensor.name);
  const auto is_of_part = [&](const auto& entry) { return entry.first.starts_with(part.name + "."); };
  std::ranges::copy_if(weights.taken, std::inserter(weights.unused, weights.unused.end()), is_of_part);
  std::erase_if(weights.taken, is_of_part);
}

// A file without any adapter has the weights below them.
std::vector<std::string> fresh_adapters(const models::ModelOptions& model, const storage::TensorMap& file) {
  std::vector<std::string> names;
  if (model.lora_rank == 0 || has_adapters(file)) return names;
  for (const auto& layer : models::make_without_values(model).layers) {
    for (const nn::Parameter* parameter : layer->parameters())
      if (models::is_adapter(parameter->name)) names.push_back(parameter->name);
  }
  return names;
}

std::string names_and_sizes(const storage::TensorMap& tensors) {
  std::vector<std::string> words;
  for (const auto& [name, tensor] : tensors) words.push_back(concat(name, " ", tensor.sizes()));
  return join(words, ", ");
}

std::string describe_how(const models::ForeignWeights& foreign) {
  std::string text;
  if (foreign.names != models::NamesOf::kOurs) text += concat(" under ", models::in_words(foreign.names), " names");
  if (!foreign.interpolated.empty()) text += concat("; interpolated: ", foreign.interpolated);
  if (foreign.new_counters > 0)
    text += concat("; ", counted(foreign.new_counters, "counter"), " of batches begin at 0 (not in the file)");
  return text;
}

}  // namespace

bool has_adapters(const storage::TensorMap& tensors) {
  return std::ranges::any_of(tensors, [](const auto& entry) { return models::is_adapter(entry.first); });
}

StartingWeights choose_starting_weights(const models::ModelOptions& model, storage::TensorMap file) {
  const Head head = head_of(model);
  StartingWeights weights{.file_classes = classes_in(file, head), .own_classes = head.classes};
  weights.fresh_adapters = fresh_adapters(model, file);
  weights.taken = std::move(file);
  const std::int64_t more = weights.file_classes - weights.own_classes;
  const bool is_of_others = more != 0 && weights.file_classes > 0;
  // A file that lacks a part but has a later one is damaged.
  const auto end = std::find_if_not(head.parts.rbegin(), head.parts.rend(), [&](const HeadPart& part) {
                     return is_lacking(weights.taken, part);
                   }).base();
  for (auto part = head.parts.begin(); part != head.parts.end(); ++part) {
    if (part >= end) {
      leave_fresh(*part, weights, weights.lacking);
    } else if (is_of_others && is_of_wider(weights.taken, *part, more)) {
      leave_fresh(*part, weights, weights.of_other_classes);
    }
  }
  return weights;
}

std::string in_words(const StartingWeights& weights) {
  const auto of_file = static_cast<std::int64_t>(weights.taken.size()) - weights.new_counters;
  std::string text = concat(counted(of_file, "tensor"), " taken", weights.how);
  if (!weights.of_other_classes.empty()) {
    text += concat("; fresh: ", join(weights.of_other_classes, ", "), " (the file has ", weights.file_classes,
                   weights.file_classes == 1 ? " class" : " classes", ", the model ", weights.own_classes, ")");
  }
  if (!weights.lacking.empty()) text += concat("; fresh: ", join(weights.lacking, ", "), " (not in the file)");
  if (!weights.fresh_adapters.empty())
    text += concat("; fresh: ", counted(std::ssize(weights.fresh_adapters) / 2, "adapter"));
  if (!weights.unused.empty()) text += concat("; unused: ", names_and_sizes(weights.unused));
  return text;
}

namespace {

// Adapters and trained head, under our names.
storage::TensorMap read_adapters(const models::ModelOptions& model, const std::filesystem::path& folder) {
  const std::filesystem::path path = storage::resolve_weights(folder), file = path / "adapter_model.safetensors";
  if (std::error_code ignored; !std::filesystem::exists(file, ignored)) {
    throw CheckpointError("model.lora_weights: there is no ", file.string(),
                          "; name a folder that peft or Sluice has saved");
  }
  const nlohmann::json config = storage::read_object(path / "adapter_config.json");
  storage::TensorMap tensors = models::from_peft(model, storage::read_safetensors(file).tensors, config, path.string());
  engine::refuse_not_finite(tensors, file.string());
  return tensors;
}

// Replaces tensors by the adapters and the head of the folder.
void take_adapters(const models::ModelOptions& model, const std::filesystem::path& folder,
                   storage::TensorMap& tensors) {
  storage::TensorMap taken = read_adapters(model, folder);
  taken.merge(tensors);
  tensors = std::move(taken);
}

// A run has trained a file's own adapters further than those of the folder.
bool are_taken(const std::filesystem::path& adapters, const storage::TensorMap& weights) {
  return !adapters.empty() && !has_adapters(weights);
}

std::string about_adapters(const std::filesystem::path& adapters, bool taken) {
  if (adapters.empty()) return {};
  return taken ? concat("adapters and head from ", adapters.string())
               : "they have adapters of their own, so model.lora_weights is not read";
}

}  // namespace

storage::TensorMap with_adapters(const models::ModelOptions& model, storage::TensorMap weights,
                                 const std::filesystem::path& adapters, const std::string& source) {
  const bool taken = are_taken(adapters, weights);
  if (taken) take_adapters(model, adapters, weights);
  if (!adapters.empty()) log_info("weights of ", source, ": ", about_adapters(adapters, taken));
  if (model.lora_rank > 0 && !has_adapters(weights)) {
    throw CheckpointError(source,
                          " has no adapters; set model.lora_weights, or model.lora_rank = 0 for the weights alone");
  }
  return weights;
}

void load_starting_weights(engine::Composition& composition, const models::ModelOptions& model,
                           const std::filesystem::path& file, const std::filesystem::path& adapters) {
  models::ForeignWeights foreign = models::to_our_names(model, storage::read_weights(file), file.string());
  if (model.lora_rank == 0 && has_adapters(foreign.tensors)) {
    throw CheckpointError(file.string(),
                          " has LoRA adapters, but model.lora_rank = 0; set the keys model.lora_* of "
                          "the run that saved it, or merge its adapters first: sluice merge ",
                          file.string(), " --out FOLDER");
  }
  const bool takes_adapters = are_taken(adapters, foreign.tensors);
  StartingWeights weights = choose_starting_weights(model, std::move(foreign.tensors));
  weights.how = describe_how(foreign);
  weights.new_counters = foreign.new_counters;
  weights.unused.merge(foreign.left_out);
  engine::refuse_not_finite(weights.unused, file.string());
  storage::TensorMap tensors = weights.taken;
  for (const auto* fresh : {&weights.of_other_classes, &weights.lacking, &weights.fresh_adapters}) {
    if (fresh->empty()) continue;
    const storage::TensorMap own = engine::model_tensors(composition);
    for (const std::string& name : *fresh) tensors[name] = own.at(name).clone();
  }
  if (takes_adapters) {
    take_adapters(model, adapters, tensors);
    weights.fresh_adapters.clear();
  }
  engine::load_model(composition, tensors, file.string());
  const std::string more = about_adapters(adapters, takes_adapters);
  log_info("weights of ", file.string(), ": ", in_words(weights), more.empty() ? "" : "; ", more);
}

}  // namespace sluice::train
