// post_processor: puts one or two tokenized texts and the tokens around them ([CLS], [SEP], <s>, ...) into encodings,
// and cuts them into windows. Threads: any. Errors: ConfigError for a truncation that cannot work; DataError for a text
// that is too short for it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/encoding.h"

namespace sluice::text {

// The tokens of one text.
struct TextTokens {
  std::vector<TokenId> ids;
  std::vector<CharRange> offsets;
  // Spaces at both ends of each token, only if the post-processor trims offsets.
  struct Spaces {
    std::uint32_t leading, trailing;
  };
  std::vector<Spaces> spaces;

  void clear() {
    ids.clear();
    offsets.clear();
    spaces.clear();
  }
};

struct TemplatePiece {
  int sequence;              // 0 or 1: the tokens of that text; -1: special tokens
  std::vector<TokenId> ids;  // special tokens
  std::uint8_t type_id;
};
using Template = std::vector<TemplatePiece>;

struct PostProcessor {
  Template single = {{0, {}, 0}};
  Template pair = {{0, {}, 0}, {1, {}, 1}};
  bool trims_offsets = false;      // offsets leave out spaces that byte-level tokens begin or end with
  bool adds_prefix_space = false;  // ByteLevel has added a space to the text, which is not in the offsets
  bool is_roberta = false;         // later windows have type 0, too

  [[nodiscard]] std::size_t added_tokens(bool is_pair) const;

  // `second` is null for a single text.
  void encode(const TextTokens& first, const TextTokens* second, bool adds_special_tokens, Encoding& out) const;
  // The first window and those that overflow, in the order of `tokenizers`.
  [[nodiscard]] std::vector<Encoding> windows(const TextTokens& first, const TextTokens* second,
                                              bool adds_special_tokens, const Truncation& truncation) const;

 private:
  struct Window {
    std::size_t begin, end;
    bool is_first;
  };
  struct Part {
    const TextTokens* tokens;
    Window window;
  };
  [[nodiscard]] static std::vector<Window> cut(std::size_t length, std::size_t kept, std::size_t stride);
  void append(const Part& part, const TemplatePiece& piece, bool adds_special_tokens, Encoding& out) const;
  void assemble(const Template& pieces, std::span<const Part> parts, bool adds_special_tokens, Encoding& out) const;
};

}  // namespace sluice::text
