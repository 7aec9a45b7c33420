// text_config: sizes and arithmetic of a text model, as Hugging Face's config.json names them. Threads: any.
// Errors: ConfigError with the file, the field, its value and what to do, also for models that compute otherwise:
// mixtures of experts, sliding windows, other activations or rotary positions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nn/gelu.h"
#include "nn/rotary.h"

namespace sluice::models {

enum class TextType : std::uint8_t { kBert, kRoberta, kDistilbert, kLlama, kMistral, kQwen2, kGpt2 };

// Hugging Face's model_type, and the model.name that makes such a model.
[[nodiscard]] std::string name_of(TextType type);
[[nodiscard]] std::string family_of(TextType type);

struct TextDropouts {
  double embedding = 0, attention = 0, hidden = 0;
  double classify = 0, tokens = 0, qa = 0;  // of the heads
};

struct TextConfig {
  TextType type = TextType::kBert;
  std::string source;  // name of the file, for messages; empty: a size of our own
  std::string text;    // its content, byte for byte

  std::int64_t vocabulary = 0, types = 0, positions = 0;
  std::int64_t width = 0, blocks = 0, heads = 0, kv_heads = 0, head_width = 0, hidden = 0;
  std::int64_t window = 0;    // longest sequence without an effect of a sliding window; 0: there is no window
  std::int64_t padding = -1;  // id of the padding token; -1: none
  std::int64_t labels = 2;    // of the file; the model's are ModelOptions::classes
  std::vector<std::string> label_names = {};  // own_label_names()
  double epsilon = 0;                         // of all norms
  double deviation = 0.02;                    // of initial weights
  nn::GeluForm gelu = nn::GeluForm::kExact;
  TextDropouts dropouts;
  nn::RotaryOptions rotary = {};
  bool is_tied = true;  // the language model's matrix is the token table
  bool has_qkv_bias = true, has_output_bias = true, has_mlp_bias = true;

  // RoBERTa's positions begin behind the row of the padding token.
  [[nodiscard]] std::int64_t first_position() const { return type == TextType::kRoberta ? padding + 1 : 0; }
  // Number of positions of the longest sequence.
  [[nodiscard]] std::int64_t longest() const;
};

// The first field of `theirs` with which a model computes otherwise than with `ours` from the same tensors, with both
// values; empty if they compute alike. Dropout is not compared.
[[nodiscard]] std::string arithmetic_difference(const TextConfig& theirs, const TextConfig& ours);

// Names of the classes in a config.json, in order. Empty if it has no names but default_label_names().
[[nodiscard]] std::vector<std::string> own_label_names(const nlohmann::json& config);
// LABEL_0, LABEL_1, ..., by which Hugging Face numbers classes without names.
[[nodiscard]] std::vector<std::string> default_label_names(std::int64_t count);

using TextConfigPtr = std::shared_ptr<const TextConfig>;

[[nodiscard]] TextConfigPtr read_text_config(const std::string& path);
// For a config.json that was read before. `source` names it in messages.
[[nodiscard]] TextConfig parse_text_config(const nlohmann::json& config, const std::string& source);

// The content of a config.json: that of the file, or an equivalent one. With `labels` above 0, `id2label` has as many:
// `names`, or if there are none the file's, or LABEL_0 and so on.
[[nodiscard]] std::string config_json(const TextConfig& config, std::int64_t labels,
                                      const std::vector<std::string>& names = {});

}  // namespace sluice::models
