#include "train/setup/model_options.h"

#include <algorithm>

#include <ATen/Context.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/setup/task_options.h"

namespace sluice::train {
namespace {

models::ModelOptions model_of(const config::Config& config) {
  models::ModelOptions options(config.model, dtype_of(config), config.train.seed);
  options.in_bf16 = config.train.precision == "bf16";
  if (!options.config.empty()) options.text = models::read_text_config(options.config);
  return options;
}

models::ModelOptions token_options(const config::Config& config) {
  models::ModelOptions options = model_of(config);
  options.patch_size = 0;
  return options;
}

int size_from_data(const char* key, int configured, std::int64_t of_data, const std::string& data_name) {
  if (configured != 0 && configured != of_data) {
    throw ConfigError(key, " = ", configured, ", but data set ", data_name, " has ", of_data, "; set ", key,
                      " = 0 to use the data set's value");
  }
  return static_cast<int>(of_data);
}

int label_count(const config::Config& config, const data::DatasetInfo& info) {
  const auto of_data = static_cast<int>(info.class_names.size());
  const int asked = config.model.classes;
  if (asked == 0 && of_data < 2) {
    throw ConfigError("data set ", info.name, " has ", of_data, " classes of texts, but model.task = \"",
                      config.model.task, "\" needs 2 or more; set data.label_column, or model.classes");
  }
  const bool is_number = asked == 1 && config.model.task != "tokens";
  if (asked > 0 && !is_number && asked < of_data) {
    throw ConfigError("model.classes = ", asked, ", but data set ", info.name, " has ", of_data,
                      "; set model.classes = 0 to use the data set's value");
  }
  return asked > 0 ? asked : of_data;
}

bool fits(const data::DatasetInfo& info, models::TextHead head) {
  const data::FieldInfo* const targets = info.field(data::kTargets);
  const bool has_questions = info.field(data::kStarts) != nullptr;
  switch (head) {
    case models::TextHead::kClassify: return targets != nullptr && targets->sizes.empty();
    case models::TextHead::kTokens: return targets != nullptr && !targets->sizes.empty() && !info.class_names.empty();
    case models::TextHead::kQa: return has_questions;
    default: return !has_questions;
  }
}

void check_task(const config::Config& config, const data::DatasetInfo& info, models::TextHead head) {
  if (info.name.empty() || fits(info, head)) return;  // a batch of the user has no name
  throw ConfigError("model.task = \"", config.model.task, "\" does not fit data set ", info.name,
                    ": classify and tokens need jsonl or csv with labels, qa needs squad, lm and mlm need texts; set "
                    "another model.task or data.name");
}

void warn_of_foreign_tokenizer(const config::Config& config, const data::DatasetInfo& info, int vocabulary) {
  constexpr double kUsualPart = 0.9;  // models may have a few more rows than their tokenizers have tokens
  const bool has_weights = !config.model.weights.empty() && !config.model.config.empty();
  if (info.name.empty() || !has_weights) return;  // a batch of the user has no name
  if (static_cast<double>(info.classes) >= kUsualPart * vocabulary) return;
  log_warning("data set ", info.name, " has ", info.classes, " different tokens, but the model of ",
              config.model.config, " has ", vocabulary,
              "; if its weights were trained with another tokenizer, set data.tokenizer to that");
}

models::ModelOptions token_model(const config::Config& config, const data::DatasetInfo& info) {
  const auto refuse = [&](const char* key, int value) {
    if (value == 0) return;
    throw ConfigError(
        concat(key, " = ", value, " does not apply to ", config.model.name, ", a token model; remove it"));
  };
  models::ModelOptions options = token_options(config);
  const models::TextHead head = models::text_head(options);
  const bool has_labels = head == models::TextHead::kClassify || head == models::TextHead::kTokens;
  if (!has_labels) refuse("model.classes", config.model.classes);
  refuse("model.image_size", config.model.image_size);
  refuse("model.channels", config.model.channels);
  const models::TokenSizes sizes = models::token_sizes(options);
  if (sizes.vocabulary < info.classes) {
    if (!config.model.config.empty()) {
      throw ConfigError("data.tokenizer has ", info.classes, " tokens, but the model of ", config.model.config, " has ",
                        sizes.vocabulary, "; take the tokenizer that belongs to the model");
    }
    throw ConfigError("model.vocabulary = ", sizes.vocabulary, ", but data set ", info.name, " has ", info.classes,
                      " different tokens; set it to ", info.classes, " or more");
  }
  warn_of_foreign_tokenizer(config, info, sizes.vocabulary);
  options.vocabulary = sizes.vocabulary;
  options.context = sizes.context;
  if (has_labels) options.classes = label_count(config, info);
  check_task(config, info, head);
  return options;
}

void check_kind(const config::Config& config, SampleKind kind, const data::DatasetInfo& info) {
  if (kind == info.kind) return;
  throw ConfigError("model.name = \"", config.model.name, "\" takes ", name_of(kind), ", but data set ", info.name,
                    " has ", name_of(info.kind), "; choose another model.name or data.name");
}

bool fits_sizes(const models::TensorInfo& wanted, const data::FieldInfo& field) {
  for (std::size_t i = 0; i < wanted.sizes.size(); ++i) {
    const bool is_open = std::ranges::find(wanted.open, static_cast<int>(i)) != wanted.open.end();
    if (!is_open && field.sizes[i] != wanted.sizes[i]) return false;
  }
  return true;
}

bool is_out_of_range(const models::TensorInfo& wanted, const data::FieldInfo& field) {
  const bool is_known = field.lowest <= field.highest && wanted.is_bound_known;
  return is_known && (field.lowest < 0 || field.highest >= wanted.bound);
}

// What the model takes in place of the field; empty: it takes the field.
std::string needed_for(const models::TensorInfo& wanted, const data::FieldInfo& field) {
  if (field.sizes.size() != wanted.sizes.size()) return counted(std::ssize(wanted.sizes), "dimension");
  if (!fits_sizes(wanted, field)) return concat(at::IntArrayRef(wanted.sizes));
  if (wanted.bound == 0) return {};
  if (at::isFloatingType(field.type)) return "whole numbers";
  const bool is_ignored = at::isIntegralType(field.type, /*includeBool=*/false) && field.lowest > field.highest;
  if (is_ignored && wanted.name == data::kTargets) return concat("at least one that is not ", task::kNoTarget);
  if (!is_out_of_range(wanted, field)) return {};
  return concat("numbers from 0 to ", wanted.bound - 1, ", and it holds ",
                field.lowest < 0 ? field.lowest : field.highest);
}

void check_fields_of(const std::string& file, const std::vector<models::TensorInfo>& wanted,
                     const data::DatasetInfo& info) {
  const std::string name = concat(info.name, info.split == data::Split::kTest ? " (test)" : "");
  std::vector<std::string> known, needed;
  for (const data::FieldInfo& field : info.fields) known.push_back(field.name);
  for (const models::TensorInfo& one : wanted) needed.push_back(one.name);
  for (const models::TensorInfo& one : wanted) {
    const data::FieldInfo* const field = info.field(one.name);
    if (field == nullptr && one.is_optional) continue;
    if (field == nullptr)
      throw ConfigError("the model of ", file, " takes ", join(needed, ", "), ", but data set ", name, " has ",
                        join(known, ", "), "; name its tensors as the arguments of forward()",
                        did_you_mean(one.name, known));
    if (const std::string why = misfit(one, *field); !why.empty()) throw ConfigError("data set ", name, ": ", why);
  }
}

void check_classes(const std::string& file, std::int64_t of_model, std::int64_t of_data, const std::string& data) {
  if (of_model == 0 || of_data <= of_model) return;
  throw ConfigError("the model of ", file, " has ", of_model, " classes, but data set ", data, " has ", of_data,
                    "; export it with as many");
}

void check_tokens_of_file(const config::Config& config, const models::FileDescription& file,
                          const data::DatasetInfo& info, models::TextHead head) {
  if (info.classes > file.tokens.vocabulary && file.tokens.vocabulary > 0)
    throw ConfigError("data set ", info.name, " has ", info.classes, " different tokens, but the model of ",
                      config.model.file, " has ", file.tokens.vocabulary, "; set data.tokenizer to the model's own");
  if (config.data.pack == "documents")
    throw ConfigError("data.pack = \"documents\" is not supported by ", config.model.name,
                      ", whose mask only hides padding; use \"joined\" or \"none\"");
  check_task(config, info, head);
  const bool has_mask = std::ranges::any_of(file.inputs, [](const auto& input) { return input.name == data::kMask; });
  if (info.field(data::kMask) == nullptr || has_mask) return;
  if (config.train.is_reproducible_by_layout() && config.data.pad != "max") {
    throw ConfigError("the model of ", config.model.file,
                      " takes no mask, so that its results depend on the length that a process pads texts to; for "
                      "train.reproducible = \"layout\", set data.pad = \"max\", or export it with attention_mask");
  }
  log_warning("the model of ", config.model.file, " takes no mask, so that it sees padding as text; export it with ",
              "attention_mask");
}

// A model of the user's, whose file says what it takes. A batch of the user has no kind.
models::ModelOptions file_model(const config::Config& config, const models::FileDescription& file,
                                const data::DatasetInfo& info) {
  models::ModelOptions options = model_of(config);
  models::check_file_keys(options, file);
  options.has_own_fields = info.kind == SampleKind::kTensors || file.kind == SampleKind::kTensors;
  options.classes = static_cast<int>(file.classes);
  if (options.has_own_fields) {
    check_kind(config, SampleKind::kTensors, info);
    return options;
  }
  check_kind(config, file.kind, info);
  options.patch_size = 0;
  if (file.kind == SampleKind::kImage) {
    check_classes(config.model.file, file.classes, info.classes, info.name);
    if (info.channels != file.channels)
      throw ConfigError("the model of ", config.model.file, " takes images of ", file.channels,
                        " channels, but data set ", info.name, " has ", info.channels, "; export it with as many");
    options.channels = file.channels;
    options.image_size = file.image_size;
    return options;
  }
  options.vocabulary = file.tokens.vocabulary;
  options.context = file.tokens.context;
  const models::TextHead head = models::text_head(options);
  check_tokens_of_file(config, file, info, head);
  check_classes(config.model.file, file.classes, std::ssize(info.class_names), info.name);
  return options;
}

// Images are resized to the configured size. Without a configured size they must all be square and of one size.
int image_size(const config::Config& config, const data::DatasetInfo& info) {
  constexpr int kOfPictures = 224;
  if (config.model.image_size != 0) return config.model.image_size;
  if (info.is_encoded) return kOfPictures;
  if (info.height == info.width) return static_cast<int>(info.height);
  throw ConfigError("data set ", info.name, " has images of ", info.height, "x", info.width,
                    ", but models need square images; set model.image_size to resize them");
}

}  // namespace

std::string misfit(const models::TensorInfo& wanted, const data::FieldInfo& field) {
  const std::string needed = needed_for(wanted, field);
  if (needed.empty()) return {};
  return concat("'", field.name, "' has samples of ", at::IntArrayRef(field.sizes), " ", c10::toString(field.type),
                ", but the model takes ", needed, "; save it so, or export the model for it");
}

void check_fields(const config::Config& config, const models::ModelOptions& model,
                  const std::vector<const data::Dataset*>& splits) {
  if (!model.has_own_fields) return;
  const models::Model shapes = models::make_without_values(model);
  std::vector<models::TensorInfo> wanted = shapes.inputs;
  if (shapes.classes > 0) wanted.insert(wanted.end(), shapes.targets.begin(), shapes.targets.end());
  for (const data::Dataset* split : splits) {
    if (split != nullptr) check_fields_of(config.model.file, wanted, split->info());
  }
}

at::ScalarType dtype_of(const config::Config& config) {
  return config.train.precision == "fp64" ? at::kDouble : at::kFloat;
}

nn::Numerics numerics_of(const config::Config& config) {
  nn::Numerics numerics{.label_smoothing = config.train.label_smoothing};
  if (config.pipeline.batch_norm == "sync") numerics.batch_norm = nn::BatchNormMode::kSync;
  if (config.pipeline.batch_norm == "deferred") numerics.batch_norm = nn::BatchNormMode::kDeferred;
  if (config.train.winograd == "none") numerics.winograd = nn::Winograd::kNone;
  if (config.train.winograd == "4x4") numerics.winograd = nn::Winograd::k4x4;
  return numerics;
}

std::string stored_precision(const config::Config& config) {
  return dtype_of(config) == at::kDouble ? "fp64" : "fp32 or bf16";
}

data::DatasetOptions dataset_options(const config::Config& config) {
  data::DatasetOptions options{.name = config.data.name,
                               .path = config.data.path,
                               .limit = config.data.limit,
                               .samples = config.data.samples,
                               .seed = config.train.seed};
  if (config.model.channels > 0) options.channels = config.model.channels;
  if (config.model.image_size > 0) options.image_size = config.model.image_size;
  const models::ModelOptions model = model_of(config);
  const auto file = models::description_of(model);
  if (file && file->kind == SampleKind::kImage) {
    options.channels = file->channels;
    options.image_size = file->image_size;
  }
  const bool takes_tokens = file ? file->kind == SampleKind::kTokens && config.data.name != "tensors"
                                 : models::kind_of(model) == SampleKind::kTokens;
  if (takes_tokens) {
    options.text = text_options(config, token_options(config));
    options.context = options.text.max_length;
  }
  return options;
}

models::ModelOptions model_options(const config::Config& config, const data::DatasetInfo& info) {
  if (const auto file = models::description_of(model_of(config))) return file_model(config, *file, info);
  const SampleKind kind = models::kind_of(model_of(config));
  check_kind(config, kind, info);
  if (kind == SampleKind::kTokens) return token_model(config, info);
  if (config.model.classes != 0 && config.model.classes < info.classes) {
    throw ConfigError("model.classes = ", config.model.classes, ", but data set ", info.name, " has ", info.classes,
                      "; set model.classes = 0 to use the data set's value");
  }
  models::ModelOptions options = model_of(config);
  if (options.classes == 0) options.classes = static_cast<int>(info.classes);
  options.image_size = image_size(config, info);
  if (config.data.resize != 0 && config.data.resize < options.image_size) {
    throw ConfigError("data.resize = ", config.data.resize, " is less than the ", options.image_size,
                      " pixels of the model's images, which are cropped from it; set it to ", options.image_size,
                      " or more");
  }
  options.channels = size_from_data("model.channels", config.model.channels, info.channels, info.name);
  return options;
}

optim::OptimizerOptions optimizer_options(const config::Config& config) {
  const config::TrainConfig& train = config.train;
  return {.kind = train.optimizer,
          .momentum = train.momentum,
          .nesterov = train.nesterov,
          .nesterov_delay = config::nesterov_delay(config),
          .weight_decay = train.weight_decay,
          .rms_alpha = train.rms_alpha,
          .beta1 = train.beta1,
          .beta2 = train.beta2,
          .eps = train.eps,
          .amsgrad = train.amsgrad,
          .ema_decay = train.ema_decay,
          .ema_every = train.ema_every_steps};
}

void apply_libtorch_settings(const config::Config& config) {
  at::Context& context = at::globalContext();
  if (config.train.deterministic || config.train.is_reproducible_by_layout()) {
    context.setDeterministicAlgorithms(true, /*warn_only=*/true);
    context.setDeterministicFillUninitializedMemory(false);
  }
  context.setAllowTF32CuBLAS(config.device.tf32);
  context.setAllowTF32CuDNN(config.device.tf32);
}

}  // namespace sluice::train
