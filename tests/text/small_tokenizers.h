// Small tokenizer files for the tests.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace sluice::text {

// A tokenizer.json of `parts`, JSON members such as "\"model\": ...".
inline std::string tokenizer_json(std::string_view parts) {
  return "{\"version\": \"1.0\", " + std::string(parts) + "}";
}

inline constexpr std::string_view kWordPiece =
    R"("model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
    "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "un": 3, "##aff": 4, "##able": 5, "hello": 6, ",": 7, "a": 8, "##b": 9, "b": 10}})";
inline constexpr std::string_view kBertParts =
    R"("normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "added_tokens": [
      {"id": 1, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
      {"id": 2, "content": "[SEP]", "single_word": false, "lstrip": true, "rstrip": false, "normalized": false, "special": true},
      {"id": 11, "content": "ab", "single_word": true, "lstrip": false, "rstrip": false, "normalized": true, "special": false}])";

inline std::string bert_json() { return tokenizer_json(std::string(kBertParts) + ", " + std::string(kWordPiece)); }

inline Tokenizer parsed(const std::string& json) { return Tokenizer(parse_tokenizer_json(json, "t.json")); }

}  // namespace sluice::text
