// word_cache: the tokens of frequent words. Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/model.h"

namespace sluice::text {

// Forgets everything when it is full: frequent words return at once.
class WordCache {
 public:
  static constexpr std::size_t kMostWords = 1 << 14;
  static constexpr std::size_t kLongestWord = 64;

  // Valid until the next call.
  std::span<const WordToken> tokens_of(std::string_view word, const Model& model) {
    if (word.size() > kLongestWord) {
      long_word_.clear();
      model.tokenize(word, long_word_);
      return long_word_;
    }
    const TokenId known = words_.find(word);
    if (known != kNoToken) {
      const auto [first, count] = places_[static_cast<std::size_t>(known)];
      return std::span(tokens_).subspan(first, count);
    }
    if (words_.size() == kMostWords) *this = {};
    const std::size_t first = tokens_.size();
    model.tokenize(word, tokens_);
    words_.add(word, static_cast<TokenId>(places_.size()));
    places_.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(tokens_.size() - first)});
    return std::span(tokens_).subspan(first);
  }

 private:
  struct Place {
    std::uint32_t first, count;
  };

  TokenMap words_{kMostWords};  // to their index
  std::vector<Place> places_;   // [word], in tokens_
  std::vector<WordToken> tokens_, long_word_;
};

}  // namespace sluice::text
