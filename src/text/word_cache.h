// word_cache: the tokens of frequent words. Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/model.h"

namespace sluice::text {

// Forgets everything when it is full: frequent words return at once.
class WordCache {
 public:
  static constexpr std::size_t kMostWords = 1 << 14;
  static constexpr std::size_t kLongestWord = 64;

  WordCache() : slots_(2 * kMostWords) {}

  // Valid until the next call.
  std::span<const WordToken> tokens_of(std::string_view word, const Model& model) {
    if (word.size() > kLongestWord) {
      long_word_.clear();
      model.tokenize(word, long_word_);
      return long_word_;
    }
    const std::uint64_t hash = TokenMap::hash_of(word);
    std::size_t i = hash % slots_.size();
    for (; slots_[i].is_used; i = (i + 1) % slots_.size()) {
      const Slot& slot = slots_[i];
      if (slot.hash == static_cast<std::uint32_t>(hash >> 32) && slot.size == word.size() &&
          word == std::string_view(words_).substr(slot.offset, slot.size)) {
        return std::span(tokens_).subspan(slot.first, slot.count);
      }
    }
    if (++count_ > kMostWords) {
      clear();
      return tokens_of(word, model);
    }
    const std::size_t first = tokens_.size();
    model.tokenize(word, tokens_);
    slots_[i] = {.hash = static_cast<std::uint32_t>(hash >> 32),
                 .offset = static_cast<std::uint32_t>(words_.size()),
                 .first = static_cast<std::uint32_t>(first),
                 .count = static_cast<std::uint16_t>(tokens_.size() - first),
                 .size = static_cast<std::uint8_t>(word.size()),
                 .is_used = true};
    words_.append(word);
    return std::span(tokens_).subspan(first);
  }

 private:
  struct Slot {
    std::uint32_t hash, offset, first;
    std::uint16_t count;
    std::uint8_t size;
    bool is_used;
  };

  void clear() {
    slots_.assign(slots_.size(), Slot{});
    words_.clear();
    tokens_.clear();
    count_ = 0;
  }

  std::vector<Slot> slots_;
  std::string words_;
  std::vector<WordToken> tokens_, long_word_;
  std::size_t count_ = 0;
};

}  // namespace sluice::text
