// decoder: the decoders of `tokenizers`, which make text of tokens. Threads: any. Errors: DataError as
// Pattern::find_all().
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "text/pattern.h"

namespace sluice::text {

struct ByteLevelDecode {};  // byte_level.h; invalid UTF-8 becomes U+FFFD
struct WordPieceDecode {
  std::string prefix;
  bool cleans_up;  // removes spaces before punctuation and in English contractions
};
struct MetaspaceDecode {
  Pattern replacement;
  bool removes_first;  // the space that the pre-tokenizer put before the text
};
struct ByteFallbackDecode {};  // <0x0A>
struct FuseDecode {};
struct StripDecode {
  std::string content;      // one character
  std::size_t left, right;  // at most so many at each end of a token
};
struct ReplaceDecode {
  Pattern pattern;
  std::string content;
};
struct SentencePieceDecode {
  std::string unknown, unknown_surface;  // the unknown piece and what becomes of it
  bool removes_prefix;                   // the space before the first piece
  bool removes_all_leading;              // all spaces before the first piece that is more than that
};
using DecoderStep = std::variant<ByteLevelDecode, WordPieceDecode, MetaspaceDecode, ByteFallbackDecode, FuseDecode,
                                 StripDecode, ReplaceDecode, SentencePieceDecode>;

[[nodiscard]] std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

}  // namespace sluice::text
