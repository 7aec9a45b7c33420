#include "train/setup/task_options.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "models/peft_files.h"
#include "storage/files.h"
#include "task/exported_tasks.h"
#include "task/text_tasks.h"
#include "text/tokenizer.h"
#include "train/setup/setup.h"
#include "train/setup/starting_weights.h"

namespace sluice::train {
namespace {

using models::TextHead;

bool takes_tokens(const models::ModelOptions& model) { return models::kind_of(model) == SampleKind::kTokens; }

void refuse_smoothing(double label_smoothing, const char* task) {
  if (label_smoothing == 0) return;
  throw ConfigError("train.label_smoothing = ", label_smoothing, " does not apply to ", task, "; remove it");
}

// Empty: unknown.
std::vector<std::string> names_of_labels(const models::ModelOptions& model, const data::DatasetInfo* data) {
  if (data == nullptr || data->class_names.empty()) return {};
  std::vector<std::string> names =
      models::default_label_names(std::max<std::int64_t>(model.classes, std::ssize(data->class_names)));
  std::ranges::copy(data->class_names, names.begin());
  return names;
}

// Names of the classes of the head that the model starts with: those of the config.json beside the file with the head,
// else of model.config. Without any, default names.
std::vector<std::string> names_of_head(const config::Config& config, const models::ModelOptions& model) {
  std::vector<std::filesystem::path> files;
  const auto add = [&](const std::filesystem::path& weights) {
    if (!weights.empty()) files.push_back(storage::folder_of_weights(weights) / "config.json");
  };
  const std::filesystem::path adapters = storage::resolve_weights(config.model.lora_weights),
                              weights = storage::resolve_weights(config.model.weights);
  std::error_code ignored;
  const bool are_both_there = !adapters.empty() && std::filesystem::exists(weights, ignored);
  const bool has_own = are_both_there && has_adapters(storage::read_weights(weights));
  add(has_own ? weights : adapters);  // model.lora_weights is not read if the weights have adapters
  add(has_own ? adapters : weights);
  if (!config.model.config.empty()) files.emplace_back(config.model.config);
  for (const std::filesystem::path& file : files) {
    std::vector<std::string> names = models::own_label_names(storage::read_object(file));
    if (!names.empty()) return names;
  }
  const std::int64_t of_file = model.text ? model.text->labels : 0;
  return models::default_label_names(config.model.classes > 0 ? config.model.classes : of_file);
}

data::Packing packing_of(const std::string& word) {
  if (word == "documents") return data::Packing::kApart;
  return word == "joined" ? data::Packing::kTogether : data::Packing::kNone;
}

// Bytes are running text, and other tasks have one text a sample.
void check_documents(const config::DataConfig& data, TextHead head) {
  const bool is_modelled = head == TextHead::kLm || head == TextHead::kMlm;
  const bool has_documents = is_modelled && data.name != "toy" && !(data.name == "text" && data.tokenizer.empty());
  const auto refuse = [&](const std::string& key, const std::string& value, const char* needs) {
    throw ConfigError("data.", key, " = \"", value, "\" needs ", needs, "; remove it");
  };
  if (data.pack != config::DataConfig().pack && !has_documents)
    refuse("pack", data.pack, "a language model and the documents of a tokenizer");
  if (data.documents != config::DataConfig().documents && !(has_documents && data.name == "text"))
    refuse("documents", data.documents, "data.name = \"text\" with data.tokenizer");
}

std::vector<std::string> numbers_as_names(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// As configured, or of the model's file.
std::int64_t classes_of_head(const config::Config& config, const models::ModelOptions& model) {
  const auto file = models::description_of(model);
  return file ? file->classes : config.model.classes;
}

}  // namespace

void settle_task(config::Config& config) {
  std::string& task = config.model.task;
  if (!task.empty() || !takes_tokens(models::ModelOptions(config.model))) return;
  const std::string& data = config.data.name;
  if (data == "squad") task = "qa";
  if ((data == "jsonl" || data == "csv") && config.model.name == "bert") task = "classify";
}

namespace {

task::TaskPtr text_task_of(const models::ModelOptions& model, const data::DatasetInfo* data, double label_smoothing) {
  switch (models::text_head(model)) {
    case TextHead::kLm:
    case TextHead::kMlm: return task::make_text_language_model(label_smoothing);
    case TextHead::kClassify:
      if (model.classes > 1) return task::make_sequence_classification(model.classes, label_smoothing);
      refuse_smoothing(label_smoothing, "a number as label");
      return task::make_regression();
    case TextHead::kTokens: {
      refuse_smoothing(label_smoothing, "model.task = \"tokens\"");
      const std::vector<std::string> names = names_of_labels(model, data);
      return task::make_token_classification(names.empty() ? numbers_as_names(model.classes) : names);
    }
    case TextHead::kQa: refuse_smoothing(label_smoothing, "model.task = \"qa\""); break;
  }
  return task::make_question_answering();
}

std::vector<std::string> names_of(const std::vector<models::TensorInfo>& tensors) {
  std::vector<std::string> names;
  std::ranges::transform(tensors, std::back_inserter(names), &models::TensorInfo::name);
  return names;
}

task::TaskPtr file_task_of(const models::ModelOptions& model, const models::FileDescription& file,
                           const data::DatasetInfo* data, double label_smoothing) {
  if (file.count_targets) {
    refuse_smoothing(label_smoothing, "a model that gives its loss");
    return task::make_own_loss(names_of(file.inputs), names_of(file.targets), file.count_targets);
  }
  task::TaskPtr task;
  if (file.kind == SampleKind::kTokens) {
    task = text_task_of(model, data, label_smoothing);
  } else if (file.classes == 1) {
    refuse_smoothing(label_smoothing, "numbers as targets");
    task = task::make_regression();
  } else {
    task = task::make_classification(label_smoothing);
  }
  return task::with_inputs(std::move(task), names_of(file.inputs), file.is_map);
}

}  // namespace

task::TaskPtr task_of(const models::ModelOptions& model, const data::DatasetInfo* data, double label_smoothing) {
  if (const auto file = models::description_of(model)) return file_task_of(model, *file, data, label_smoothing);
  return takes_tokens(model) ? text_task_of(model, data, label_smoothing) : task::make_classification(label_smoothing);
}

data::TextOptions text_options(const config::Config& config, const models::ModelOptions& model) {
  const config::DataConfig& data = config.data;
  const std::int64_t positions = models::token_sizes(model).context;
  if (data.max_length > positions) {
    throw ConfigError("data.max_length = ", data.max_length, ", but the model has ", positions,
                      " positions; set it to ", positions, " or less");
  }
  const TextHead head = models::text_head(model);
  check_documents(data, head);
  data::TextOptions options{.tokenizer = data.tokenizer,
                            .max_length = data.max_length > 0 ? data.max_length : positions,
                            .stride = data.stride,
                            .pads_to_max = data.pad == "max",
                            .always_has_mask = keeps_features(config) || config.train.is_reproducible_by_layout(),
                            .pack = packing_of(data.pack),
                            .text = data.text_column,
                            .text2 = data.pair_column,
                            .label = data.label_column,
                            .label_kind = data::LabelKind::kNone,
                            .documents = text::document_rule(data.documents),
                            .adds_special_tokens = head == TextHead::kMlm,
                            .threads = device::available_cores()};
  if (head == TextHead::kClassify || head == TextHead::kTokens) options.class_names = names_of_head(config, model);
  if (!data.pair_column.empty() && head != TextHead::kClassify) {
    throw ConfigError("data.pair_column = \"", data.pair_column,
                      "\" applies only to model.task = \"classify\"; remove it");
  }
  if (head == TextHead::kTokens) options.label_kind = data::LabelKind::kClassOfEachWord;
  if (head == TextHead::kClassify)
    options.label_kind = classes_of_head(config, model) == 1 ? data::LabelKind::kNumber : data::LabelKind::kClass;
  return options;
}

data::MaskOptions masking_of(const config::Config& config, const models::ModelOptions& model) {
  if (!takes_tokens(model) || models::text_head(model) != TextHead::kMlm) return {};
  if (config.data.tokenizer.empty())
    throw ConfigError("model.task = \"mlm\" needs data.tokenizer, which has the mask token; set it");
  const auto tokenizer = text::open_tokenizer(config.data.tokenizer);
  const auto find = [&](std::initializer_list<const char*> names) {
    std::vector<std::int64_t> ids;
    for (const char* name : names) {
      if (const text::TokenId id = tokenizer->find(name); id != text::kNoToken) ids.push_back(id);
    }
    return ids;
  };
  const std::vector<std::int64_t> mask = find({"[MASK]", "<mask>"});
  if (mask.empty())
    throw ConfigError("data.tokenizer = ", config.data.tokenizer,
                      " has no mask token ([MASK] or <mask>), which model.task = \"mlm\" needs; take another one");
  return {.share = config.data.mask_share,
          .mask_id = mask.front(),
          .vocabulary = tokenizer->end_id(),
          .kept = find({"[CLS]", "[SEP]", "[PAD]", "[UNK]", "<s>", "</s>", "<pad>", "<unk>"})};
}

namespace {

// The folder of model.weights if transformers can load it; else empty.
std::string base_of_adapters(const std::filesystem::path& weights) {
  std::error_code ignored;
  if (weights.empty()) return {};
  const std::filesystem::path folder =
      storage::folder_of_weights(std::filesystem::absolute(weights, ignored).lexically_normal());
  return std::filesystem::exists(folder / "config.json", ignored) ? folder.string() : std::string();
}

}  // namespace

storage::TensorMap adapter_beside_weights(const models::ModelOptions& model, const storage::TensorMap& tensors) {
  return model.lora_rank > 0 ? models::peft_tensors(model, tensors) : storage::TensorMap();
}

std::map<std::string, std::string> files_beside_weights(const config::Config& config, const models::ModelOptions& model,
                                                        const data::DatasetInfo* data) {
  std::map<std::string, std::string> files;
  if (model.lora_rank > 0)
    files["adapter_config.json"] = models::peft_config(model, base_of_adapters(config.model.weights));
  if (!models::is_text(model)) return files;
  const bool has_labels = model.classes > 0;
  files["config.json"] =
      models::config_json(models::text_config(model), has_labels ? model.classes : 0, names_of_labels(model, data));
  if (config.data.tokenizer.empty()) return files;
  const std::filesystem::path tokenizer = config.data.tokenizer;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::filesystem::path file = tokenizer.parent_path() / name;
    if (std::error_code ignored; std::filesystem::is_regular_file(file, ignored))
      files[name] = storage::read_text(file);
  }
  const bool is_json = tokenizer.extension() == ".json";  // from_pretrained() knows such a file by one name only
  files[is_json ? "tokenizer.json" : tokenizer.filename().string()] = storage::read_text(tokenizer);
  return files;
}

std::string best_by(const config::TrainConfig& train, const Scores& scores) {
  std::vector<std::string> known{"loss"};
  for (const Score& score : scores) known.push_back(score.name);
  if (std::ranges::find(known, train.best_by) != known.end()) return train.best_by;
  if (train.best_by == config::TrainConfig{}.best_by && scores.empty()) return "loss";
  if (train.best_by == config::TrainConfig{}.best_by)
    return std::ranges::find_if(scores, [](const Score& score) { return score.needs > 0; })->name;
  throw ConfigError("train.best_by = \"", train.best_by,
                    "\" is not a score of this task; use one of: ", join(known, ", "),
                    did_you_mean(train.best_by, known));
}

}  // namespace sluice::train
