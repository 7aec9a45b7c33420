// model: what turns one word (a piece of pre-tokenized text) into tokens. Threads: any.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace sluice::text {

// Scratch memory of a thread that a longer text needed is freed after it.
inline constexpr std::size_t kMostKeptBytes = std::size_t{16} << 20;

struct WordToken {
  TokenId id;
  std::uint32_t bytes;  // of the word

  bool operator==(const WordToken&) const = default;
};

class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  // Appends the tokens of a word, in the order of its bytes.
  virtual void tokenize(std::string_view word, std::vector<WordToken>& tokens) const = 0;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  Vocabulary vocabulary_;
};

}  // namespace sluice::text
