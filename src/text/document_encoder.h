// document_encoder: the tokens of documents, each with the token that ends it.
// Threads: any. Errors: those of DocumentText::text_of().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/document_text.h"
#include "text/tokenizer.h"

namespace sluice::text {

struct EncodedDocuments {
  std::vector<TokenId> ids;
  std::vector<std::uint64_t> lengths;  // tokens of each document
  std::uint64_t empty = 0;             // documents left out, because they have no tokens
  std::uint64_t repaired = 0;          // documents with invalid UTF-8
};

class DocumentEncoder {
 public:
  // end: follows each document, unless the special tokens already end with it; kNoToken: none.
  DocumentEncoder(const Tokenizer& tokenizer, TokenId end, bool adds_special_tokens)
      : tokenizer_(tokenizer), end_(end), adds_special_tokens_(adds_special_tokens) {}

  // `records` follow each other in their file; the first is its record number `first`.
  [[nodiscard]] EncodedDocuments encode(const DocumentText& rule, const std::vector<std::string_view>& records,
                                        std::uint64_t first) const;

 private:
  const Tokenizer& tokenizer_;
  TokenId end_;
  bool adds_special_tokens_;
};

// The end-of-text token of a tokenizer by its usual names; empty: none.
[[nodiscard]] std::string end_of_text_token(const Tokenizer& tokenizer);

}  // namespace sluice::text
