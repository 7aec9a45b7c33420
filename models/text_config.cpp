#include "models/text_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::models {
namespace {

using nlohmann::json;

struct TypeName {
  TextType type;
  const char *name, *family;
};
constexpr std::array kTypes{
    TypeName{TextType::kBert, "bert", "bert"},
    TypeName{TextType::kRoberta, "roberta", "bert"},
    TypeName{TextType::kDistilbert, "distilbert", "bert"},
    TypeName{TextType::kLlama, "llama", "llama"},
    TypeName{TextType::kMistral, "mistral", "llama"},
    TypeName{TextType::kQwen2, "qwen2", "llama"},
    TypeName{TextType::kGpt2, "gpt2", "gpt2"},
};

constexpr std::array<std::string_view, 3> kRopeTypes{"default", "linear", "llama3"};  // by nn::RotaryScaling

const TypeName& entry_of(TextType type) { return *std::ranges::find(kTypes, type, &TypeName::type); }

// Reads fields. A field that is null or missing has the default of transformers.
class Reader {
 public:
  Reader(const json& fields, std::string source) : fields_(fields), source_(std::move(source)) {}

  [[noreturn]] void refuse(const std::string& field, const std::string& why) const {
    throw ConfigError(source_, ": ", field, " = ", fields_.value(field, json()).dump(), " ", why);
  }

  [[nodiscard]] bool has(const char* field) const { return fields_.contains(field) && !fields_[field].is_null(); }

  [[nodiscard]] bool is_null(const char* field) const { return fields_.contains(field) && fields_[field].is_null(); }

  [[nodiscard]] std::int64_t count(const char* field, std::int64_t fallback) const {
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    const std::int64_t value = integer(field, fallback);
    if (value < 1 || value > kMost) refuse(field, "is not a size; correct the file");
    return value;
  }
  [[nodiscard]] std::int64_t integer(const char* field, std::int64_t fallback) const {
    if (!has(field)) return fallback;
    if (!fields_[field].is_number_integer()) refuse(field, "is not an integer; correct the file");
    return fields_[field].get<std::int64_t>();
  }
  [[nodiscard]] double positive(const char* field, double fallback) const {
    if (!has(field)) return fallback;
    if (!fields_[field].is_number() || !(fields_[field].get<double>() > 0))
      refuse(field, "is not a number above 0; correct the file");
    return fields_[field].get<double>();
  }
  [[nodiscard]] double probability(const char* field, double fallback) const {
    if (!has(field)) return fallback;
    if (!fields_[field].is_number() || !(fields_[field].get<double>() >= 0 && fields_[field].get<double>() < 1))
      refuse(field, "is not at least 0 and below 1; correct the file");
    return fields_[field].get<double>();
  }
  [[nodiscard]] bool flag(const char* field, bool fallback) const {
    if (!has(field)) return fallback;
    if (!fields_[field].is_boolean()) refuse(field, "is not true or false; correct the file");
    return fields_[field].get<bool>();
  }
  [[nodiscard]] std::string word(const char* field, const std::string& fallback) const {
    if (!has(field)) return fallback;
    if (!fields_[field].is_string()) refuse(field, "is not a word; correct the file");
    return fields_[field].get<std::string>();
  }
  [[nodiscard]] Reader inside(const char* field) const {
    if (!fields_[field].is_object()) refuse(field, "is not a table; correct the file");
    return {fields_[field], concat(source_, ": ", field)};
  }

  void require(const char* field, const json& needed, const char* why) const {
    if (has(field) && fields_[field] != needed) refuse(field, concat("is not supported: ", why, "; use another model"));
  }

 private:
  const json& fields_;
  std::string source_;
};

nn::GeluForm gelu_of(const Reader& reader, const char* field, const char* fallback) {
  const std::string word = reader.word(field, fallback);
  for (const char* exact : {"gelu", "gelu_python"})
    if (word == exact) return nn::GeluForm::kExact;
  for (const char* tanh : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"})
    if (word == tanh) return nn::GeluForm::kTanh;
  reader.refuse(field, "is not supported: these models have GELU, exact or by tanh; use another model");
}

void check_width_of_heads(const Reader& reader, const char* field, const TextConfig& config) {
  if (config.width % config.heads != 0)
    reader.refuse(field, concat("does not divide the width of ", config.width, "; correct the file"));
}

void read_encoder(const Reader& reader, TextConfig& config) {
  const bool is_roberta = config.type == TextType::kRoberta;
  config.vocabulary = reader.count("vocab_size", is_roberta ? 50265 : 30522);
  config.types = reader.count("type_vocab_size", 2);
  config.positions = reader.count("max_position_embeddings", 512);
  config.width = reader.count("hidden_size", 768);
  config.blocks = reader.count("num_hidden_layers", 12);
  config.heads = reader.count("num_attention_heads", 12);
  config.hidden = reader.count("intermediate_size", 3072);
  config.epsilon = reader.positive("layer_norm_eps", 1e-12);
  config.gelu = gelu_of(reader, "hidden_act", "gelu");
  config.padding = reader.integer("pad_token_id", is_roberta ? 1 : 0);
  if (is_roberta && (config.padding < 0 || config.padding + 1 >= config.positions))
    reader.refuse("pad_token_id", "leaves no positions; correct the file");
  const double hidden = reader.probability("hidden_dropout_prob", 0.1);
  const double of_head = reader.probability("classifier_dropout", hidden);
  config.dropouts = {.embedding = hidden,
                     .attention = reader.probability("attention_probs_dropout_prob", 0.1),
                     .hidden = hidden,
                     .classify = of_head,
                     .tokens = of_head};
  check_width_of_heads(reader, "num_attention_heads", config);
  reader.require("is_decoder", false, "every token sees all others");
  reader.require("add_cross_attention", false, "the model is an encoder");
  reader.require("position_embedding_type", "absolute", "positions are a table");
  reader.require("tie_word_embeddings", true, "the head has the matrix of the tokens");
}

void read_distilbert(const Reader& reader, TextConfig& config) {
  config.vocabulary = reader.count("vocab_size", 30522);
  config.positions = reader.count("max_position_embeddings", 512);
  config.width = reader.count("dim", 768);
  config.blocks = reader.count("n_layers", 6);
  config.heads = reader.count("n_heads", 12);
  config.hidden = reader.count("hidden_dim", 3072);
  config.epsilon = 1e-12;
  config.gelu = gelu_of(reader, "activation", "gelu");
  config.padding = reader.integer("pad_token_id", 0);
  const double hidden = reader.probability("dropout", 0.1);
  config.dropouts = {.embedding = hidden,
                     .attention = reader.probability("attention_dropout", 0.1),
                     .hidden = hidden,
                     .classify = reader.probability("seq_classif_dropout", 0.2),
                     .tokens = hidden,
                     .qa = reader.probability("qa_dropout", 0.1)};
  check_width_of_heads(reader, "n_heads", config);
  reader.require("sinusoidal_pos_embds", false, "positions are trained");
  reader.require("tie_word_embeddings", true, "the head has the matrix of the tokens");
}

// transformers 5 writes `rope_parameters`; older versions write rope_theta and, if it is not the default, rope_scaling.
void read_rotary(const Reader& reader, TextConfig& config) {
  const char* table = reader.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  config.rotary = {
      .head_width = config.head_width, .positions = config.positions, .theta = reader.positive("rope_theta", 10000)};
  if (config.head_width % 2 != 0) reader.refuse("head_dim", "must be even for rotary positions; correct the file");
  if (!reader.has(table)) return;
  const Reader rope = reader.inside(table);
  const char* type = rope.has("rope_type") ? "rope_type" : "type";
  const std::string word = rope.word(type, "default");
  config.rotary.theta = rope.positive("rope_theta", config.rotary.theta);
  rope.require("partial_rotary_factor", 1.0, "all of a head is rotated");
  const auto found = std::ranges::find(kRopeTypes, word);
  if (found == kRopeTypes.end()) rope.refuse(type, "is not supported; use a model with default, linear or llama3");
  config.rotary.scaling = static_cast<nn::RotaryScaling>(found - kRopeTypes.begin());
  if (config.rotary.scaling == nn::RotaryScaling::kNone) return;
  config.rotary.factor = rope.positive("factor", 1);
  config.rotary.low_factor = rope.positive("low_freq_factor", 1);
  config.rotary.high_factor = rope.positive("high_freq_factor", 4);
  config.rotary.original_positions = rope.count("original_max_position_embeddings", config.positions);
}

// Sliding windows that are as long as a sequence or longer have no effect. null: no window.
void read_window(const Reader& reader, TextConfig& config) {
  if (config.type == TextType::kQwen2) reader.require("use_sliding_window", false, "a token sees all before it");
  if (config.type == TextType::kMistral && !reader.is_null("sliding_window"))
    config.window = reader.count("sliding_window", 4096);
}

void read_heads(const Reader& reader, TextConfig& config) {
  config.heads = reader.count("num_attention_heads", 32);
  config.kv_heads = reader.count("num_key_value_heads", config.type == TextType::kMistral ? 8 : config.heads);
  if (!reader.has("head_dim")) check_width_of_heads(reader, "num_attention_heads", config);
  config.head_width = reader.count("head_dim", config.width / config.heads);
  if (config.heads % config.kv_heads != 0)
    reader.refuse("num_key_value_heads", concat("does not divide ", config.heads, " heads; correct the file"));
}

void read_llama(const Reader& reader, TextConfig& config) {
  const bool is_qwen = config.type == TextType::kQwen2, is_mistral = config.type == TextType::kMistral;
  config.vocabulary = reader.count("vocab_size", is_qwen ? 151936 : 32000);
  config.width = reader.count("hidden_size", 4096);
  config.hidden = reader.count("intermediate_size", is_qwen ? 22016 : is_mistral ? 14336 : 11008);
  config.blocks = reader.count("num_hidden_layers", 32);
  config.positions = reader.count("max_position_embeddings", is_qwen ? 32768 : is_mistral ? 131072 : 2048);
  config.epsilon = reader.positive("rms_norm_eps", 1e-6);
  config.padding = reader.integer("pad_token_id", -1);
  config.is_tied = reader.flag("tie_word_embeddings", false);
  config.has_output_bias = config.type == TextType::kLlama && reader.flag("attention_bias", false);
  config.has_qkv_bias = is_qwen || config.has_output_bias;
  config.has_mlp_bias = config.type == TextType::kLlama && reader.flag("mlp_bias", false);
  config.dropouts.attention = reader.probability("attention_dropout", 0);
  read_heads(reader, config);
  const std::string activation = reader.word("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    reader.refuse("hidden_act", "is not supported: these models have SiLU; use another model");
  read_rotary(reader, config);
  read_window(reader, config);
}

void read_gpt2(const Reader& reader, TextConfig& config) {
  config.vocabulary = reader.count("vocab_size", 50257);
  config.positions = reader.count("n_positions", 1024);
  config.width = reader.count("n_embd", 768);
  config.blocks = reader.count("n_layer", 12);
  config.heads = reader.count("n_head", 12);
  config.hidden = reader.count("n_inner", 4 * config.width);
  config.epsilon = reader.positive("layer_norm_epsilon", 1e-5);
  config.gelu = gelu_of(reader, "activation_function", "gelu_new");
  config.padding = reader.integer("pad_token_id", -1);
  config.dropouts = {.embedding = reader.probability("embd_pdrop", 0.1),
                     .attention = reader.probability("attn_pdrop", 0.1),
                     .hidden = reader.probability("resid_pdrop", 0.1)};
  check_width_of_heads(reader, "n_head", config);
  reader.require("scale_attn_weights", true, "scores are scaled");
  reader.require("scale_attn_by_inverse_layer_idx", false, "all blocks scale scores alike");
  reader.require("add_cross_attention", false, "the model is a decoder alone");
  reader.require("tie_word_embeddings", true, "the head has the matrix of the tokens");
}

void refuse_other_kinds(const Reader& reader, const json& fields) {
  for (const char* experts : {"num_local_experts", "num_experts", "n_routed_experts"})
    if (reader.has(experts)) reader.refuse(experts, "is not supported: mixtures of experts are not; use a dense model");
  if (reader.has("quantization_config"))
    reader.refuse("quantization_config", "is not supported: quantised weights are not; use the original model");
  if (!reader.has("layer_types")) return;
  for (const json& type : fields["layer_types"])
    if (type != "full_attention")
      reader.refuse("layer_types", "is not supported: only full_attention is; use another model");
}

void read_labels(const Reader& reader, const json& fields, TextConfig& config) {
  const bool has_names = reader.has("id2label") && fields["id2label"].is_object();
  config.labels = has_names ? std::ssize(fields["id2label"]) : reader.count("num_labels", 2);
  config.label_names = own_label_names(fields);
}

TextType read_type(const Reader& reader) {
  const std::string word = reader.word("model_type", "");
  std::vector<std::string> known;
  for (const TypeName& entry : kTypes) {
    if (word == entry.name) return entry.type;
    known.emplace_back(entry.name);
  }
  reader.refuse("model_type", concat("is not supported; use a model of ", join(known, ", ")));
}

}  // namespace

std::string name_of(TextType type) { return entry_of(type).name; }
std::string family_of(TextType type) { return entry_of(type).family; }

std::int64_t TextConfig::longest() const {
  const std::int64_t all = positions - first_position();
  return window > 0 ? std::min(all, window) : all;
}

std::vector<std::string> own_label_names(const json& config) {
  const json* const table = config.contains("id2label") ? &config["id2label"] : nullptr;
  if (table == nullptr || !table->is_object()) return {};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < table->size(); ++i) {
    const auto name = table->find(std::to_string(i));
    if (name == table->end() || !name->is_string()) return {};
    names.push_back(*name);
  }
  return names == default_label_names(std::ssize(names)) ? std::vector<std::string>() : names;
}

std::vector<std::string> default_label_names(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(concat("LABEL_", i));
  return names;
}

TextConfig parse_text_config(const json& fields, const std::string& source) {
  if (!fields.is_object()) throw ConfigError(source, " is not a table of fields; use the config.json of a model");
  const Reader reader(fields, source);
  TextConfig config{.type = read_type(reader), .source = source};
  refuse_other_kinds(reader, fields);
  config.deviation = reader.positive("initializer_range", 0.02);
  read_labels(reader, fields, config);
  const std::string family = family_of(config.type);
  if (family == "llama") {
    read_llama(reader, config);
  } else if (family == "gpt2") {
    read_gpt2(reader, config);
  } else if (config.type == TextType::kDistilbert) {
    read_distilbert(reader, config);
  } else {
    read_encoder(reader, config);
  }
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_width == 0) config.head_width = config.width / config.heads;
  return config;
}

TextConfigPtr read_text_config(const std::string& path) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    throw ConfigError("model.config = \"", path, "\" is a folder; name the config.json in it");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("cannot read model.config = \"", path, "\"; give the config.json of a model");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const json fields = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (fields.is_discarded()) throw ConfigError(path, " is not valid JSON; use the config.json of a model");
  auto config = std::make_shared<TextConfig>(parse_text_config(fields, path));
  config->text = text;
  return config;
}

std::string arithmetic_difference(const TextConfig& theirs, const TextConfig& ours) {
  const auto values = [](const TextConfig& config) {
    const nn::RotaryOptions& rotary = config.rotary;
    return std::vector<std::pair<const char*, std::string>>{
        {"model_type", name_of(config.type)},
        {"number of attention heads", concat(config.heads)},
        {"number of key-value heads", concat(config.kv_heads)},
        {"epsilon of norms", concat(config.epsilon)},
        {"form of GELU", config.gelu == nn::GeluForm::kTanh ? "tanh" : "exact"},
        {"first position", concat(config.first_position())},
        {"rope_theta", concat(rotary.theta)},
        {"rope_type", std::string(kRopeTypes.at(static_cast<std::size_t>(rotary.scaling)))},
        {"rope factor", concat(rotary.factor)},
        {"low_freq_factor", concat(rotary.low_factor)},
        {"high_freq_factor", concat(rotary.high_factor)},
        {"original_max_position_embeddings",
         concat(rotary.scaling == nn::RotaryScaling::kLlama3 ? rotary.original_positions : 0)}};
  };
  const auto of_theirs = values(theirs), of_ours = values(ours);
  const auto [their, our] = std::ranges::mismatch(of_theirs, of_ours);
  return their == of_theirs.end() ? ""
                                  : concat(their->first, " = ", their->second, ", but the model has ", our->second);
}

}  // namespace sluice::models
