// encoding: the result of tokenizing a text, or a pair of texts.
#pragma once

#include <cstdint>
#include <vector>

#include "text/aligned_text.h"
#include "text/token_map.h"

namespace sluice::text {

// All vectors have one entry per token.
struct Encoding {
  std::vector<TokenId> ids;
  std::vector<CharRange> offsets;  // into the text that the token is from; 0, 0 for tokens of the post-processor
  std::vector<std::uint8_t> type_ids;
  std::vector<std::uint8_t> special_tokens_mask;  // 1: the post-processor added the token
  std::vector<std::int8_t> sequence_ids;          // 0: first text, 1: second text, -1: neither

  bool operator==(const Encoding&) const = default;
  void clear() {
    ids.clear();
    offsets.clear();
    type_ids.clear();
    special_tokens_mask.clear();
    sequence_ids.clear();
  }
};

enum class TruncationStrategy { kLongestFirst, kOnlyFirst, kOnlySecond };

struct Truncation {
  std::size_t max_length;  // tokens of an encoding, those of the post-processor included
  std::size_t stride = 0;  // tokens that a window shares with the one before
  TruncationStrategy strategy = TruncationStrategy::kLongestFirst;
};

}  // namespace sluice::text
