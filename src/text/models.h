// models: the models of tokenizer.json. Errors: DataError for an unknown token that is not in the vocabulary, and for
// merges of unknown tokens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/model.h"

namespace sluice::text {

// BERT's model. Takes the longest token that a word begins with, then the longest continuation, and so on. If a part of
// a word has no token, the whole word becomes the unknown token.
struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string continuation = "##";
  std::size_t longest_word = 100;  // characters; a longer word is unknown
};

[[nodiscard]] std::unique_ptr<Model> make_wordpiece(Vocabulary vocabulary, const WordPieceOptions& options,
                                                    const std::string& where);

// Byte-pair encoding. Begins with the characters of a word and joins, again and again, the adjacent pair whose merge
// comes first in the file.
struct BpeOptions {
  std::optional<std::string> unknown;  // nothing: characters without a token are left out
  std::string continuation;            // prefix of tokens that do not begin a word
  std::string word_end;                // suffix of tokens that end a word
  bool fuses_unknown = false;          // one unknown token for adjacent characters
  bool falls_back_to_bytes = false;    // tokens <0x00> to <0xFF> instead of the unknown token
  bool ignores_merges = false;         // a word that is a token is not merged from its parts

  [[nodiscard]] bool has_affixes() const { return !continuation.empty() || !word_end.empty(); }
};
using Merges = std::vector<std::pair<std::string, std::string>>;

// Words of byte-level models are raw bytes; the vocabulary writes each byte as a character (byte_level.h).
enum class BpeInput { kCharacters, kRawBytes };

// kRawBytes requires has_all_bytes(vocabulary).
[[nodiscard]] std::unique_ptr<Model> make_bpe(Vocabulary vocabulary, const Merges& merges, const BpeOptions& options,
                                              BpeInput input, const std::string& where);

}  // namespace sluice::text
