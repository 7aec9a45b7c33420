#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "models/text_config.h"

namespace sluice::models {
namespace {

using nlohmann::json;

// The fields of a size of our own that differ from the defaults of transformers or that a reader looks for.
json fields_of(const TextConfig& config) {
  json fields{{"model_type", name_of(config.type)},
              {"vocab_size", config.vocabulary},
              {"initializer_range", config.deviation},
              {"tie_word_embeddings", config.is_tied}};
  const bool is_gelu_tanh = config.gelu == nn::GeluForm::kTanh;
  if (config.type == TextType::kGpt2) {
    fields.update({{"n_positions", config.positions},
                   {"n_embd", config.width},
                   {"n_layer", config.blocks},
                   {"n_head", config.heads},
                   {"n_inner", config.hidden},
                   {"layer_norm_epsilon", config.epsilon},
                   {"activation_function", is_gelu_tanh ? "gelu_new" : "gelu"}});
    return fields;
  }
  fields.update({{"max_position_embeddings", config.positions},
                 {"hidden_size", config.width},
                 {"num_hidden_layers", config.blocks},
                 {"num_attention_heads", config.heads},
                 {"intermediate_size", config.hidden}});
  if (config.type == TextType::kBert) {
    fields.update({{"type_vocab_size", config.types},
                   {"layer_norm_eps", config.epsilon},
                   {"hidden_act", is_gelu_tanh ? "gelu_new" : "gelu"},
                   {"pad_token_id", config.padding}});
    return fields;
  }
  json rope{{"rope_type", "default"}, {"rope_theta", config.rotary.theta}};
  if (config.rotary.scaling == nn::RotaryScaling::kLlama3) {
    rope.update({{"rope_type", "llama3"},
                 {"factor", config.rotary.factor},
                 {"low_freq_factor", config.rotary.low_factor},
                 {"high_freq_factor", config.rotary.high_factor},
                 {"original_max_position_embeddings", config.rotary.original_positions}});
  }
  fields.update({{"num_key_value_heads", config.kv_heads},
                 {"head_dim", config.head_width},
                 {"rms_norm_eps", config.epsilon},
                 {"hidden_act", "silu"},
                 {"rope_parameters", rope},
                 {"rope_theta", config.rotary.theta}});  // for transformers 4
  if (config.rotary.scaling != nn::RotaryScaling::kNone) fields["rope_scaling"] = rope;
  return fields;
}

void put_labels(json& fields, std::int64_t labels, const std::vector<std::string>& names) {
  json by_number = json::object(), numbers = json::object();
  for (std::int64_t i = 0; i < labels; ++i) {
    const std::string name = names.empty() ? concat("LABEL_", i) : names.at(i);
    by_number[std::to_string(i)] = name;
    numbers[name] = i;
  }
  fields["id2label"] = by_number;
  fields["label2id"] = numbers;
  fields.erase("num_labels");
}

}  // namespace

std::string config_json(const TextConfig& config, std::int64_t labels, const std::vector<std::string>& names) {
  if (!config.text.empty() && (labels == 0 || (names.empty() && labels == config.labels))) return config.text;
  json fields = config.text.empty() ? fields_of(config) : json::parse(config.text);
  if (labels > 0) put_labels(fields, labels, names);
  return fields.dump(2) + "\n";
}

}  // namespace sluice::models
