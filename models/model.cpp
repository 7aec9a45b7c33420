#include "models/model.h"

#include <algorithm>
#include <array>
#include <ranges>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "models/family.h"
#include "models/lora.h"

namespace sluice::models {
namespace {

const Family& find_family(const std::string& name) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.name == name) return family;
    known.push_back(family.name);
  }
  throw ConfigError(
      concat("model.name = \"", name, "\" is unknown; choose one of: ", join(known, ", "), did_you_mean(name, known)));
}

void require_at_least_one(const char* key, int value) {
  if (value < 1) throw ConfigError("model.", key, "=", value, " must be at least 1");
}

void check_word(const char* key, const std::string& word, const Family& family, const std::vector<std::string>& known) {
  if (std::ranges::find(known, word) != known.end()) return;
  throw ConfigError(
      concat("model.", key, "=\"", word, "\" is not a ", key, " of ", family.name, "; use one of ", join(known, ", ")));
}

void check_probability(const char* key, double value, bool is_supported, const Family& family) {
  if (!(value >= 0 && value < 1)) throw ConfigError("model.", key, "=", value, " must be at least 0 and below 1");
  if (value == 0 || is_supported) return;
  throw ConfigError("model.", key, "=", value, " is not supported by ", family.name, "; set model.", key, "=0");
}

void check_images(const ModelOptions& options, const Family& family) {
  require_at_least_one("classes", options.classes);
  require_at_least_one("image_size", options.image_size);
  require_at_least_one("channels", options.channels);
  const auto refuse = [&](const char* key, int value) {
    if (value == 0) return;
    throw ConfigError(
        concat("model.", key, "=", value, " is not supported by ", family.name, "; leave model.", key, " out"));
  };
  refuse("vocabulary", options.vocabulary);
  refuse("context", options.context);
}

struct HeadName {
  TextHead head;
  const char* name;
};
constexpr std::array kHeads{HeadName{TextHead::kLm, "lm"}, HeadName{TextHead::kMlm, "mlm"},
                            HeadName{TextHead::kClassify, "classify"}, HeadName{TextHead::kTokens, "tokens"},
                            HeadName{TextHead::kQa, "qa"}};

const char* word_of(TextHead head) { return std::ranges::find(kHeads, head, &HeadName::head)->name; }

std::vector<std::string> tasks_of_file(const FileDescription& file) {
  std::vector<std::string> names{word_of(file.head)};
  if (file.count_targets && file.head == TextHead::kTokens) names.emplace_back(word_of(TextHead::kMlm));
  if (file.kind == SampleKind::kImage || file.count_targets) return names;
  for (const HeadName& head : kHeads) {
    if (head.head != file.head) names.emplace_back(head.name);
  }
  return names;
}

// The default first.
std::vector<std::string> tasks_of(const ModelOptions& options, const Family& family) {
  if (family.describe) return tasks_of_file(family.describe(options));
  if (family.kind(options) == SampleKind::kImage) return {"classify"};
  if (family.heads.empty()) return {"lm"};
  std::vector<std::string> names;
  for (const TextHead head : family.heads) names.emplace_back(word_of(head));
  return names;
}

bool has_labels(TextHead head) { return head == TextHead::kClassify || head == TextHead::kTokens; }

void check_tokens(const ModelOptions& options) {
  if (options.vocabulary < 0) require_at_least_one("vocabulary", options.vocabulary);
  if (options.context < 0) require_at_least_one("context", options.context);
  if (has_labels(text_head(options))) require_at_least_one("classes", options.classes);
}

void check_text_keys(const ModelOptions& options, const Family& family) {
  if (!options.task.empty()) check_word("task", options.task, family, tasks_of(options, family));
  if (!options.config.empty() && !family.text) {
    throw ConfigError(concat("model.config = \"", options.config, "\" is not supported by ", family.name,
                             "; leave model.config out"));
  }
}

void check_common(const ModelOptions& options, const Family& family) {
  check_text_keys(options, family);
  if (family.describe) {
    check_file_keys(options, family.describe(options));
  } else if (family.kind(options) == SampleKind::kImage) {
    check_images(options, family);
  } else {
    check_tokens(options);
  }
  if (options.dropout >= 0 || !family.text) check_probability("dropout", options.dropout, family.has_dropout, family);
  check_probability("stochastic_depth", options.stochastic_depth, family.has_stochastic_depth, family);
  if (family.sizes && options.config.empty() && !options.text) check_word("size", options.size, family, family.sizes());
  if (family.stems) check_word("stem", options.stem, family, family.stems());
  if (!family.stems && options.stem != ModelSpec().stem) {
    throw ConfigError(
        concat("model.stem=\"", options.stem, "\" is not supported by ", family.name, "; leave model.stem out"));
  }
}

// Marks the parameters after the last normalization as the classifier. Tied copies belong to their owner's layer.
Layers with_marked_classifier(Layers layers) {
  for (nn::Parameter* parameter : layers.back()->parameters())
    parameter->is_classifier = parameter->role != nn::ParameterRole::kNorm && parameter->tied_to.empty();
  return layers;
}

void refuse_key(const std::string& key, std::int64_t value, const TextConfig& config, const std::string& why) {
  throw ConfigError(concat("model.", key, "=", value, ", but ", config.source.empty() ? "the model" : config.source,
                           " ", why, "; set model.", key, "=0"));
}

// A file's vocabulary and tables are fixed; a size of our own takes those of the options.
void apply_sizes(const ModelOptions& options, TextConfig& config) {
  if (config.source.empty()) {
    if (options.vocabulary != 0) config.vocabulary = options.vocabulary;
    if (options.context != 0) config.positions = config.rotary.positions = options.context;
    return;
  }
  if (options.vocabulary != 0 && options.vocabulary != config.vocabulary)
    refuse_key("vocabulary", options.vocabulary, config, concat("has ", config.vocabulary, " tokens"));
  if (options.context > config.longest())
    refuse_key("context", options.context, config, concat("has ", config.longest(), " positions"));
}

void apply_dropout(double dropout, TextConfig& config) {
  const bool has_qa = config.type == TextType::kDistilbert;
  config.dropouts = {dropout, dropout, dropout, dropout, dropout, has_qa ? dropout : 0};
}

std::vector<TensorInfo> text_targets(TextHead head, std::int64_t classes, std::int64_t context) {
  if (head == TextHead::kQa) return {{.name = "starts", .bound = context}, {.name = "ends", .bound = context}};
  const bool is_number = head == TextHead::kClassify && classes == 1;
  return {{.name = "targets",
           .sizes = head == TextHead::kClassify ? std::vector<std::int64_t>{} : std::vector{context},
           .bound = is_number ? 0 : classes,
           .open = {0}}};
}

// The inputs of a text model and the targets of its head.
void describe_text(const ModelOptions& options, const TokenSizes& sizes, Model& model) {
  const std::vector<std::int64_t> all{sizes.context};
  model.inputs = {{.name = "inputs", .sizes = all, .bound = sizes.vocabulary}};
  const TextHead head = text_head(options);
  model.classes = head == TextHead::kQa ? 2 : has_labels(head) ? options.classes : sizes.vocabulary;
  model.targets = text_targets(head, model.classes, sizes.context);
  if (!is_text(options)) return;
  const std::int64_t types = std::max<std::int64_t>(1, text_config(options).types);
  model.inputs.push_back({.name = "mask", .sizes = all, .bound = 2, .lowest = 1, .is_optional = true});
  model.inputs.push_back({.name = "types", .sizes = all, .bound = types, .is_optional = true});
  model.inputs.push_back({.name = "positions", .sizes = all, .bound = sizes.context, .is_optional = true});
}

void describe_file(const ModelOptions& options, FileDescription file, Model& model) {
  model.inputs = std::move(file.inputs);
  model.classes = file.classes;
  const bool is_text = file.kind == SampleKind::kTokens && !file.count_targets;
  model.targets =
      is_text ? text_targets(text_head(options), file.classes, file.tokens.context) : std::move(file.targets);
}

ModelInfo describe(const std::string& name, const std::string& size) {
  ModelOptions options;
  options.name = name;
  options.size = size;
  ModelInfo info{.name = name, .size = size};
  try {
    const Model model = make_without_values(options);
    for (const auto& layer : model.layers) {
      ++info.layers;
      for (const nn::Parameter* parameter : layer->parameters()) {
        if (parameter->tied_to.empty()) info.parameters += parameter->value.numel();
      }
    }
  } catch (const ConfigError&) {  // a user's model that does not take the default images
    return {.name = name, .size = size};
  }
  return info;
}

}  // namespace

ModelConstants own_constants(const std::string& name) { return find_family(name).constants; }

ModelConstants own_constants(const ModelOptions& options) {
  if (!is_text(options)) return own_constants(options.name);
  const TextConfig config = text_config(options);
  return {.norm_epsilon = config.epsilon, .last_norm_epsilon = config.epsilon, .gelu = config.gelu};
}

bool is_text(const ModelOptions& options) { return static_cast<bool>(find_family(options.name).text); }

TextHead text_head(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  const std::string name = options.task.empty() ? tasks_of(options, family).front() : options.task;
  const auto found = std::ranges::find_if(kHeads, [&](const HeadName& head) { return head.name == name; });
  return found != kHeads.end() ? found->head : TextHead::kLm;  // check_common() refuses other words
}

TextConfig text_config(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  check(static_cast<bool>(family.text), concat("a text model, not ", options.name));
  TextConfigPtr file = options.text;
  if (!file && !options.config.empty()) file = read_text_config(options.config);
  if (!file) check_word("size", options.size, family, family.sizes());
  TextConfig config = file ? *file : family.text(options.size);
  if (const std::string own = family_of(config.type); own != options.name) {
    throw ConfigError(concat(config.source, " is of a ", name_of(config.type), " model, but model.name = \"",
                             options.name, "\"; set model.name = \"", own, "\""));
  }
  apply_sizes(options, config);
  if (options.dropout >= 0) apply_dropout(options.dropout, config);
  if (options.constants) {
    config.epsilon = options.constants->norm_epsilon;
    config.gelu = options.constants->gelu;
  }
  return config;
}

SampleKind kind_of(const ModelOptions& options) { return find_family(options.name).kind(options); }

void check_file_keys(const ModelOptions& options, const FileDescription& file) {
  const auto refuse_other = [&](const char* key, int given, std::int64_t of_file) {
    if (given == 0 || given == of_file) return;
    throw ConfigError("model.", key, " = ", given, ", but the model of ", options.file, " has ", of_file,
                      "; set model.", key, " = 0");
  };
  refuse_other("classes", options.classes, file.classes);
  refuse_other("channels", options.channels, file.channels);
  refuse_other("image_size", options.image_size, file.image_size);
  refuse_other("vocabulary", options.vocabulary, file.tokens.vocabulary);
  refuse_other("context", options.context, file.tokens.context);
  if (options.lora_rank > 0)
    throw ConfigError("model.lora_rank = ", options.lora_rank, " is not supported by ", options.name,
                      "; add adapters to the model before it is exported (peft)");
}

std::optional<FileDescription> description_of(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  return family.describe ? std::optional(family.describe(options)) : std::nullopt;
}

TokenSizes token_sizes(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  check(family.describe || family.kind(options) == SampleKind::kTokens,
        concat("a model of tokens, not ", options.name));
  if (family.describe) return family.describe(options).tokens;
  if (family.text) {
    const TextConfig config = text_config(options);
    return {static_cast<int>(config.vocabulary),
            options.context != 0 ? options.context : static_cast<int>(config.longest())};
  }
  check_word("size", options.size, family, family.sizes());
  const TokenSizes own = family.tokens(options.size);
  return {options.vocabulary != 0 ? options.vocabulary : own.vocabulary,
          options.context != 0 ? options.context : own.context};
}

Model make_model(const ModelOptions& options) {
  const Family& family = find_family(options.name);
  check_common(options, family);
  ModelOptions complete = options;
  if (!family.text && !complete.constants) complete.constants = family.constants;
  Model model;
  if (family.describe) {
    describe_file(options, family.describe(options), model);
  } else if (family.kind(options) == SampleKind::kImage) {
    model.inputs = {{.name = "inputs", .sizes = {options.channels, options.image_size, options.image_size}}};
    model.targets = {{.name = "targets", .bound = options.classes}};
    model.classes = options.classes;
  } else {
    const TokenSizes sizes = token_sizes(options);
    if (!family.text) complete.vocabulary = sizes.vocabulary, complete.context = sizes.context;
    describe_text(options, sizes, model);
  }
  if (complete.lora_rank > 0) complete.lora = lora_options(options);
  model.layers = with_marked_classifier(family.make(complete));
  if (complete.lora) freeze_below_adapters(options, model.layers);
  return model;
}

Model make_without_values(ModelOptions options) {
  options.draw_weights = false;
  return make_model(options);
}

bool has_batch_norms(const ModelOptions& options) {
  const Model model = make_without_values(options);
  return std::ranges::any_of(model.layers, [](const auto& layer) { return !layer->batch_norms().empty(); });
}

std::vector<std::string> layer_names(const Model& model) {
  std::vector<std::string> names;
  for (const auto& layer : model.layers) names.push_back(layer->name());
  return names;
}

int count_layers(const ModelOptions& options) { return static_cast<int>(make_without_values(options).layers.size()); }

std::vector<ModelInfo> list_models() {
  std::vector<ModelInfo> all;
  for (const Family& family : families()) {
    const auto sizes = family.sizes ? family.sizes() : std::vector<std::string>{""};
    for (const std::string& size : sizes) all.push_back(describe(family.name, size));
  }
  return all;
}

}  // namespace sluice::models
