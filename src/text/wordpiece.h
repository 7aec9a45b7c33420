// wordpiece: BERT's model. Takes the longest token that a word begins with, then the longest continuation, and so on;
// a word that does not end in a token is the unknown token as a whole.
// Errors: DataError if the vocabulary has no unknown token.
#pragma once

#include <memory>

#include "text/model.h"

namespace sluice::text {

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string continuation = "##";
  std::size_t longest_word = 100;  // characters; a longer word is unknown
};

[[nodiscard]] std::unique_ptr<Model> make_wordpiece(Vocabulary vocabulary, const WordPieceOptions& options,
                                                    const std::string& where);

}  // namespace sluice::text
