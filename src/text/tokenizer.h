// tokenizer: text to token ids and back, equal to PyPI's `tokenizers` and `sentencepiece`. Reads tokenizer.json,
// BERT's vocab.txt and SentencePiece's .model; docs/reference/tokenizers.md lists what is supported.
// - Offsets count characters (code points) of the original text.
// - Invalid UTF-8 is read as U+FFFD for each maximal wrong part, each of which is one character.
// - The sections "truncation" and "padding" of a file are not obeyed: the caller of encode() decides.
// Threads: any; many threads share one tokenizer. Each thread keeps a cache of frequent words for each tokenizer.
// Errors: ConfigError for a file with a component that is not supported. DataError for a damaged file, and for a text
// of more than 256 MiB, or one that becomes longer than 1 GiB, or one that exceeds the limits of PCRE2.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/encoding.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace sluice::text {

struct TokenizerParts {
  Normalizer normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::unique_ptr<Model> model;
  AddedTokens added_tokens;
  PostProcessor post_processor;
  std::vector<DecoderStep> decoder;
};

class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);

  [[nodiscard]] Encoding encode(std::string_view text, std::optional<std::string_view> pair = {},
                                bool adds_special_tokens = true) const;
  // The same, but uses the memory of `out` again.
  void encode(std::string_view text, std::optional<std::string_view> pair, bool adds_special_tokens,
              Encoding& out) const;

  // Cuts what is too long into windows that overlap; the first one comes first.
  [[nodiscard]] std::vector<Encoding> encode_windows(std::string_view text, std::optional<std::string_view> pair,
                                                     bool adds_special_tokens, const Truncation& truncation) const;

  // Leaves out ids that no token has.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skips_special_tokens = true) const;

  [[nodiscard]] TokenId find(std::string_view token) const;  // kNoToken: unknown
  [[nodiscard]] std::optional<std::string> token(TokenId id) const;
  [[nodiscard]] TokenId end_id() const;  // one more than the largest id
  [[nodiscard]] std::size_t special_tokens(bool is_pair) const { return parts_.post_processor.added_tokens(is_pair); }

 private:
  struct Scratch;

  class ScratchUse;

  void tokenize(std::string_view text, TextTokens& tokens, Scratch& scratch) const;
  void tokenize_pieces(TextTokens& tokens, Scratch& scratch) const;

  TokenizerParts parts_;
  std::uint64_t cache_key_;                    // of this object's word caches
  std::vector<TextTokens::Spaces> id_spaces_;  // [id], if the post-processor trims offsets
};

// By the name of the file: tokenizer.json (*.json), vocab.txt (*.txt), SentencePiece (*.model).
[[nodiscard]] std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& file);

// The readers, of the content of a file. where: its path, for messages.
[[nodiscard]] TokenizerParts parse_tokenizer_json(std::string_view content, const std::string& where);
[[nodiscard]] TokenizerParts parse_vocab_txt(std::string_view content, const std::string& where);
[[nodiscard]] TokenizerParts parse_sentencepiece(std::string_view content, const std::string& where);

}  // namespace sluice::text
