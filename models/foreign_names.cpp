#include "models/foreign_names.h"

#include <array>
#include <span>
#include <string_view>

namespace sluice::models {
namespace {

// Converts a number in a name to ours: scale * number + shift.
struct Number {
  int scale = 1;
  int shift = 0;
};
constexpr Number kNext{1, 1}, kTwice{2, 0}, kTwiceAndNext{2, 1};
constexpr std::size_t kMostNumbers = 3;

// `theirs` is a whole name or its first words; the rest of the name is kept. '#' stands for a number, in the same order
// in both. `ours` may be empty, or several names separated by '|'.
struct Row {
  std::string_view theirs, ours;
  std::array<Number, kMostNumbers> numbers = {};
};

struct Table {
  NamesOf source;
  std::string_view family;
  std::string_view prefix;  // prefix in files of a model with its head; files of a body omit it
  std::span<const Row> rows;
};

constexpr std::array kVitOfHuggingFace{
    Row{"layers.#.attention.q_proj", "vit.encoder.layer.#.attention.attention.query"},
    Row{"layers.#.attention.k_proj", "vit.encoder.layer.#.attention.attention.key"},
    Row{"layers.#.attention.v_proj", "vit.encoder.layer.#.attention.attention.value"},
    Row{"layers.#.attention.o_proj", "vit.encoder.layer.#.attention.output.dense"},
    Row{"layers.#.mlp.fc1", "vit.encoder.layer.#.intermediate.dense"},
    Row{"layers.#.mlp.fc2", "vit.encoder.layer.#.output.dense"},
    Row{"layers.#", "vit.encoder.layer.#"},
    Row{"embeddings", "vit.embeddings"},
    Row{"encoder", "vit.encoder"},
    Row{"layernorm", "vit.layernorm"},
    Row{"classifier", "classifier"},
    Row{"pooler", ""},
};
constexpr std::array kVitOfTorchvision{
    Row{"class_token", "vit.embeddings.cls_token"},
    Row{"conv_proj", "vit.embeddings.patch_embeddings.projection"},
    Row{"encoder.pos_embedding", "vit.embeddings.position_embeddings"},
    Row{"encoder.layers.encoder_layer_#.ln_1", "vit.encoder.layer.#.layernorm_before"},
    Row{"encoder.layers.encoder_layer_#.self_attention.in_proj_weight",
        "vit.encoder.layer.#.attention.attention.query.weight|vit.encoder.layer.#.attention.attention.key.weight|"
        "vit.encoder.layer.#.attention.attention.value.weight"},
    Row{"encoder.layers.encoder_layer_#.self_attention.in_proj_bias",
        "vit.encoder.layer.#.attention.attention.query.bias|vit.encoder.layer.#.attention.attention.key.bias|"
        "vit.encoder.layer.#.attention.attention.value.bias"},
    Row{"encoder.layers.encoder_layer_#.self_attention.out_proj", "vit.encoder.layer.#.attention.output.dense"},
    Row{"encoder.layers.encoder_layer_#.ln_2", "vit.encoder.layer.#.layernorm_after"},
    Row{"encoder.layers.encoder_layer_#.mlp.0", "vit.encoder.layer.#.intermediate.dense"},
    Row{"encoder.layers.encoder_layer_#.mlp.3", "vit.encoder.layer.#.output.dense"},
    Row{"encoder.layers.encoder_layer_#.mlp.linear_1",
        "vit.encoder.layer.#.intermediate.dense"},  // before torchvision 0.12
    Row{"encoder.layers.encoder_layer_#.mlp.linear_2", "vit.encoder.layer.#.output.dense"},
    Row{"encoder.ln", "vit.layernorm"},
    Row{"heads.head", "classifier"},
};
constexpr std::array kVitOfTimm{
    Row{"cls_token", "vit.embeddings.cls_token"},
    Row{"pos_embed", "vit.embeddings.position_embeddings"},
    Row{"patch_embed.proj", "vit.embeddings.patch_embeddings.projection"},
    Row{"blocks.#.norm1", "vit.encoder.layer.#.layernorm_before"},
    Row{"blocks.#.attn.qkv",
        "vit.encoder.layer.#.attention.attention.query|vit.encoder.layer.#.attention.attention.key|"
        "vit.encoder.layer.#.attention.attention.value"},
    Row{"blocks.#.attn.proj", "vit.encoder.layer.#.attention.output.dense"},
    Row{"blocks.#.norm2", "vit.encoder.layer.#.layernorm_after"},
    Row{"blocks.#.mlp.fc1", "vit.encoder.layer.#.intermediate.dense"},
    Row{"blocks.#.mlp.fc2", "vit.encoder.layer.#.output.dense"},
    Row{"norm", "vit.layernorm"},
    Row{"head", "classifier"},
};
constexpr std::array kResNetOfHuggingFace{
    Row{"embedder.embedder.convolution", "conv1"},
    Row{"embedder.embedder.normalization", "bn1"},
    Row{"encoder.stages.#.layers.#.shortcut.convolution", "layer#.#.downsample.0", {kNext}},
    Row{"encoder.stages.#.layers.#.shortcut.normalization", "layer#.#.downsample.1", {kNext}},
    Row{"encoder.stages.#.layers.#.layer.#.convolution", "layer#.#.conv#", {kNext, Number{}, kNext}},
    Row{"encoder.stages.#.layers.#.layer.#.normalization", "layer#.#.bn#", {kNext, Number{}, kNext}},
    Row{"classifier.1", "fc"},
};
constexpr std::array kVggOfTimm{
    Row{"features", "features"},
    Row{"pre_logits.fc1", "classifier.0"},  // timm uses convolutions of 7x7 pixels and of one pixel
    Row{"pre_logits.fc2", "classifier.3"},
    Row{"head.fc", "classifier.6"},
};
constexpr std::array kConvNextOfHuggingFace{
    Row{"embeddings.patch_embeddings", "features.0.0"},
    Row{"embeddings.layernorm", "features.0.1"},
    Row{"encoder.stages.#.downsampling_layer.#", "features.#.#", {kTwice}},
    Row{"encoder.stages.#.layers.#.layer_scale_parameter", "features.#.#.layer_scale", {kTwiceAndNext}},
    Row{"encoder.stages.#.layers.#.dwconv", "features.#.#.block.0", {kTwiceAndNext}},
    Row{"encoder.stages.#.layers.#.layernorm", "features.#.#.block.2", {kTwiceAndNext}},
    Row{"encoder.stages.#.layers.#.pwconv1", "features.#.#.block.3", {kTwiceAndNext}},
    Row{"encoder.stages.#.layers.#.pwconv2", "features.#.#.block.5", {kTwiceAndNext}},
    Row{"layernorm", "classifier.0"},
    Row{"classifier", "classifier.2"},
};
constexpr std::array kConvNextOfTimm{
    Row{"stem.#", "features.0.#"},
    Row{"stages.#.downsample.#", "features.#.#", {kTwice}},
    Row{"stages.#.blocks.#.gamma", "features.#.#.layer_scale", {kTwiceAndNext}},
    Row{"stages.#.blocks.#.conv_dw", "features.#.#.block.0", {kTwiceAndNext}},
    Row{"stages.#.blocks.#.norm", "features.#.#.block.2", {kTwiceAndNext}},
    Row{"stages.#.blocks.#.mlp.fc1", "features.#.#.block.3", {kTwiceAndNext}},
    Row{"stages.#.blocks.#.mlp.fc2", "features.#.#.block.5", {kTwiceAndNext}},
    Row{"head.norm", "classifier.0"},
    Row{"head.fc", "classifier.2"},
};
constexpr std::array kGpt2OfHuggingFace{
    Row{"h.#.attn.bias", ""},  // causal mask, in files from before 2023
    Row{"h.#.attn.masked_bias", ""}, Row{"h", "transformer.h"},       Row{"wte", "transformer.wte"},
    Row{"wpe", "transformer.wpe"},   Row{"ln_f", "transformer.ln_f"}, Row{"lm_head", "lm_head"},
    Row{"score", "score"},
};
constexpr std::array kBertOfHuggingFace{
    Row{"embeddings.position_ids", ""},       // a buffer, in files from before 2023
    Row{"cls.predictions.decoder.bias", ""},  // a copy of cls.predictions.bias
    Row{"cls.seq_relationship", ""},
    Row{"embeddings", "bert.embeddings"},
    Row{"encoder", "bert.encoder"},
    Row{"pooler", "bert.pooler"},
    Row{"cls", "cls"},
    Row{"classifier", "classifier"},
    Row{"qa_outputs", "qa_outputs"},
};
constexpr std::array kRobertaOfHuggingFace{
    Row{"embeddings.position_ids", ""},      Row{"lm_head.decoder.bias", ""},   Row{"pooler", ""},
    Row{"embeddings", "roberta.embeddings"}, Row{"encoder", "roberta.encoder"}, Row{"lm_head", "lm_head"},
    Row{"classifier", "classifier"},         Row{"qa_outputs", "qa_outputs"},
};
constexpr std::array kDistilbertOfHuggingFace{
    Row{"embeddings.position_ids", ""},
    Row{"embeddings", "distilbert.embeddings"},
    Row{"transformer", "distilbert.transformer"},
    Row{"vocab_transform", "vocab_transform"},
    Row{"vocab_layer_norm", "vocab_layer_norm"},
    Row{"vocab_projector", "vocab_projector"},
    Row{"pre_classifier", "pre_classifier"},
    Row{"classifier", "classifier"},
    Row{"qa_outputs", "qa_outputs"},
};
constexpr std::array kLlamaOfHuggingFace{
    Row{"layers.#.self_attn.rotary_emb.inv_freq", ""},
    Row{"layers", "model.layers"},
    Row{"embed_tokens", "model.embed_tokens"},
    Row{"norm", "model.norm"},
    Row{"lm_head", "lm_head"},
    Row{"score", "score"},
};

constexpr std::array kTables{
    Table{NamesOf::kHuggingFace, "vit", "vit.", kVitOfHuggingFace},
    Table{NamesOf::kTorchvision, "vit", "", kVitOfTorchvision},
    Table{NamesOf::kTimm, "vit", "", kVitOfTimm},
    Table{NamesOf::kHuggingFace, "resnet", "resnet.", kResNetOfHuggingFace},
    Table{NamesOf::kTimm, "vgg", "", kVggOfTimm},
    Table{NamesOf::kHuggingFace, "convnext", "convnext.", kConvNextOfHuggingFace},
    Table{NamesOf::kTimm, "convnext", "", kConvNextOfTimm},
    Table{NamesOf::kHuggingFace, "gpt2", "transformer.", kGpt2OfHuggingFace},
    Table{NamesOf::kHuggingFace, "bert", "bert.", kBertOfHuggingFace},
    Table{NamesOf::kHuggingFace, "roberta", "roberta.", kRobertaOfHuggingFace},
    Table{NamesOf::kHuggingFace, "distilbert", "distilbert.", kDistilbertOfHuggingFace},
    Table{NamesOf::kHuggingFace, "llama", "model.", kLlamaOfHuggingFace},
    Table{NamesOf::kHuggingFace, "mistral", "model.", kLlamaOfHuggingFace},
    Table{NamesOf::kHuggingFace, "qwen2", "model.", kLlamaOfHuggingFace},
};

struct Match {
  std::vector<int> numbers;
  std::string_view rest;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads at most four digits and moves `at` past them.
std::optional<int> read_number(std::string_view name, std::size_t& at) {
  const std::size_t begin = at;
  int number = 0;
  while (at < name.size() && is_digit(name[at]) && at - begin < 5) number = 10 * number + (name[at++] - '0');
  const std::size_t digits = at - begin;
  if (digits == 0 || digits > 4) return std::nullopt;
  return number;
}

std::optional<Match> match(std::string_view pattern, std::string_view name) {
  Match found;
  std::size_t at = 0;
  for (const char c : pattern) {
    if (c == '#') {
      const auto number = read_number(name, at);
      if (!number) return std::nullopt;
      found.numbers.push_back(*number);
    } else if (at < name.size() && name[at] == c) {
      ++at;
    } else {
      return std::nullopt;
    }
  }
  found.rest = name.substr(at);
  if (!found.rest.empty() && found.rest.front() != '.') return std::nullopt;
  return found;
}

// Files converted from TensorFlow, as the first BERT: LayerNorm.gamma and LayerNorm.beta.
std::string modern_name(std::string name) {
  for (const auto& [old, now] :
       {std::pair{".LayerNorm.gamma", ".LayerNorm.weight"}, {".LayerNorm.beta", ".LayerNorm.bias"}}) {
    if (name.ends_with(old)) return name.replace(name.rfind(old), std::string::npos, now);
  }
  return name;
}

std::vector<std::string> fill_in(const Row& row, const Match& match) {
  std::vector<std::string> names;
  if (row.ours.empty()) return names;
  std::size_t number = 0;
  names.emplace_back();
  for (const char c : row.ours) {
    if (c == '|') {
      names.back() += match.rest;
      names.emplace_back();
      number = 0;
    } else if (c == '#') {
      const auto [scale, shift] = row.numbers.at(number);
      names.back() += std::to_string(scale * match.numbers.at(number) + shift);
      ++number;
    } else {
      names.back() += c;
    }
  }
  names.back() += match.rest;
  return names;
}

}  // namespace

std::string in_words(NamesOf source) {
  switch (source) {
    case NamesOf::kOurs: return "";
    case NamesOf::kTorchvision: return "torchvision's";
    case NamesOf::kHuggingFace: return "Hugging Face's";
    case NamesOf::kTimm: return "timm's";
  }
  return "";
}

std::vector<NamesOf> foreign_sources(const std::string& model) {
  std::vector<NamesOf> sources;
  for (const Table& table : kTables) {
    if (model.starts_with(table.family)) sources.push_back(table.source);
  }
  return sources;
}

std::optional<std::vector<std::string>> our_names(NamesOf source, const std::string& model, const std::string& name) {
  const std::string modern = modern_name(name);
  for (const Table& table : kTables) {
    if (table.source != source || !model.starts_with(table.family)) continue;
    std::string_view words = modern;
    if (words.starts_with(table.prefix)) words.remove_prefix(table.prefix.size());
    for (const Row& row : table.rows) {
      if (const auto found = match(row.theirs, words)) return fill_in(row, *found);
    }
  }
  return std::nullopt;
}

}  // namespace sluice::models
