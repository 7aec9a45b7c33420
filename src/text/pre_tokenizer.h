// pre_tokenizer: the pre-tokenizers of `tokenizers`, which split normalized text into words. Each step splits every
// piece on its own, except pieces that are an added token already.
// Threads: any, each with its own PreTokenized. Errors: DataError as Pattern::find_all() and
// AlignedText.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "text/aligned_text.h"
#include "text/pattern.h"
#include "text/token_map.h"
#include "text/unicode.h"

namespace sluice::text {

struct Piece {
  std::uint32_t begin, end;  // bytes of the text
  TokenId added;             // id of the added token that it is, or kNoToken
};

struct PreTokenized {
  AlignedText text;
  std::vector<Piece> pieces;

  // Scratch of the steps.
  struct Span {
    std::uint32_t begin, end;
    bool is_match;
  };
  AlignedText other_text;
  std::vector<Piece> other_pieces;
  std::vector<Span> spans;
  Pattern::Scratch pattern;
};

// What becomes of the delimiters of a split.
enum class Delimiter { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Delimiters: matches of the pattern; inverted: what lies between them.
struct PatternSplit {
  Pattern pattern;
  Delimiter delimiter;
  bool is_inverted;
};
// Delimiters: single characters.
struct CharacterSplit {
  Property property;
  Delimiter delimiter;
};
struct BertSplit {};        // spaces are removed, punctuation is isolated
struct WordSplit {};        // `Whitespace`: runs of word characters, runs of other characters but spaces
struct ByteLevelPrefix {};  // ' ' before a piece that does not begin with one
struct ByteLevelMap {};     // each byte becomes a character (byte_level.h)
struct MetaspaceSplit {
  enum class Prepend { kFirst, kNever, kAlways } prepend;
  std::string replacement;  // one character
  bool splits;
};
using PreTokenizerStep =
    std::variant<PatternSplit, CharacterSplit, BertSplit, WordSplit, ByteLevelPrefix, ByteLevelMap, MetaspaceSplit>;

void pre_tokenize(const std::vector<PreTokenizerStep>& steps, PreTokenized& text);

}  // namespace sluice::text
