// bpe: byte-pair encoding. Begins with the characters of a word and joins, again and again, the adjacent pair whose
// merge comes first in the file.
// Errors: DataError for merges that name unknown tokens and for an unknown token that is not in the vocabulary.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "text/model.h"

namespace sluice::text {

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
