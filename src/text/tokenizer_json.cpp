// Reads tokenizer.json.
#include <utility>

#include "core/json_node.h"
#include "text/byte_level.h"
#include "text/json_components.h"
#include "text/models.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

using Json = nlohmann::json;

Vocabulary read_vocabulary(const JsonNode& node) {
  node.require(node.value().is_object(), "an object of tokens and ids");
  Vocabulary vocabulary(node.value().size());
  for (const auto& [token, id] : node.value().items()) {
    if (!id.is_number_integer()) {
      throw DataError(node.where(), ": the id of token \"", printable(token), "\" is not a whole number");
    }
    const bool is_too_large = id.is_number_unsigned() && id.get<std::uint64_t>() >> 31 != 0;
    vocabulary.add(token, is_too_large ? std::int64_t{1} << 31 : id.get<std::int64_t>(), node.where());
  }
  return vocabulary;
}

// "a b", or ["a", "b"], which newer files have.
Merges read_merges(const JsonNode& node) {
  Merges merges;
  node.require(node.value().is_array(), "a list of merges");
  for (const Json& item : node.value()) {
    if (item.is_string()) {
      const auto& line = item.get_ref<const std::string&>();
      if (line.starts_with("#version")) continue;
      const std::size_t space = line.find(' ');
      if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos) {
        merges.emplace_back(line.substr(0, space), line.substr(space + 1));
        continue;
      }
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
      continue;
    }
    throw DataError(node.where(), ": merge ", merges.size(), " is not two tokens");
  }
  return merges;
}

std::unique_ptr<Model> read_wordpiece(const JsonNode& node) {
  const WordPieceOptions options{.unknown = node.text("unk_token"),
                                 .continuation = node.text("continuing_subword_prefix"),
                                 .longest_word = static_cast<std::size_t>(node.number("max_input_chars_per_word"))};
  return make_wordpiece(read_vocabulary(node.at("vocab")), options, node.where());
}

BpeOptions read_bpe_options(const JsonNode& node) {
  if (node.has("dropout") && node.at("dropout").value() != 0.0) {
    throw ConfigError(node.at("dropout").where(), ": dropout of merges is not supported; set it to null");
  }
  const auto optional_text = [&](std::string_view key) { return node.has(key) ? node.text(key) : std::string(); };
  BpeOptions options{.continuation = optional_text("continuing_subword_prefix"),
                     .word_end = optional_text("end_of_word_suffix"),
                     .fuses_unknown = node.flag("fuse_unk", false),
                     .falls_back_to_bytes = node.flag("byte_fallback", false),
                     .ignores_merges = node.flag("ignore_merges", false)};
  if (node.has("unk_token")) options.unknown = node.text("unk_token");
  if (options.falls_back_to_bytes && options.has_affixes()) {
    throw ConfigError(node.where(),
                      ": byte_fallback beside continuing_subword_prefix or end_of_word_suffix is not supported");
  }
  return options;
}

// A byte-level step at the end of the pre-tokenizer is left to a model of raw bytes, which is faster.
std::unique_ptr<Model> read_bpe(const JsonNode& node, std::vector<PreTokenizerStep>& pre_tokenizer) {
  const BpeOptions options = read_bpe_options(node);
  Vocabulary vocabulary = read_vocabulary(node.at("vocab"));
  const bool is_mapped = !pre_tokenizer.empty() && std::holds_alternative<ByteLevelMap>(pre_tokenizer.back());
  const bool is_raw = is_mapped && !options.has_affixes() && has_all_bytes(vocabulary);
  if (is_raw) pre_tokenizer.pop_back();
  return make_bpe(std::move(vocabulary), read_merges(node.at("merges")), options,
                  is_raw ? BpeInput::kRawBytes : BpeInput::kCharacters, node.where());
}

std::unique_ptr<Model> read_model(const JsonNode& node, std::vector<PreTokenizerStep>& pre_tokenizer) {
  // The first files have no type.
  const std::string type = node.has("type")                       ? node.type()
                           : node.has("merges")                   ? "BPE"
                           : node.has("max_input_chars_per_word") ? "WordPiece"
                                                                  : node.type();
  if (type == "WordPiece") return read_wordpiece(node);
  if (type == "BPE") return read_bpe(node, pre_tokenizer);
  node.reject_type();
}

std::vector<AddedToken> read_added_tokens(const JsonNode& root) {
  std::vector<AddedToken> tokens;
  if (!root.has("added_tokens")) return tokens;
  for (const JsonNode& node : root.at("added_tokens").items()) {
    tokens.push_back({.id = node.number("id"),
                      .content = node.text("content"),
                      .is_single_word = node.flag("single_word"),
                      .strips_left = node.flag("lstrip"),
                      .strips_right = node.flag("rstrip"),
                      .is_normalized = node.flag("normalized"),
                      .is_special = node.flag("special")});
  }
  return tokens;
}

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view content, const std::string& where) {
  Json json;
  try {
    json = Json::parse(content);
  } catch (const Json::exception& error) {
    throw DataError(where, ": is not a whole JSON file: ", printable(first_line(error.what())));
  }
  const JsonNode root(json, where);
  TokenizerParts parts;
  if (root.has("version") && root.text("version") != "1.0") {
    throw ConfigError(where, ": version \"", printable(root.text("version")), "\" is not supported, only \"1.0\"");
  }
  if (root.has("normalizer")) parts.normalizer = Normalizer(read_normalizer(root.at("normalizer")));
  if (root.has("pre_tokenizer")) parts.pre_tokenizer = read_pre_tokenizer(root.at("pre_tokenizer"));
  parts.model = read_model(root.at("model"), parts.pre_tokenizer);
  const Vocabulary& vocabulary = parts.model->vocabulary();
  parts.added_tokens = AddedTokens(read_added_tokens(root), vocabulary, parts.normalizer, where + ": added_tokens");
  if (root.has("post_processor")) {
    parts.post_processor = read_post_processor(root.at("post_processor"), [&](const std::string& token) {
      const TokenId added = parts.added_tokens.find(token);
      return added != kNoToken ? added : vocabulary.find(token);
    });
  }
  if (root.has("decoder")) parts.decoder = read_decoder(root.at("decoder"));
  return parts;
}

}  // namespace sluice::text
