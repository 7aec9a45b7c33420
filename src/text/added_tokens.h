// added_tokens: tokens that are found in the text before the model sees it, such as [MASK] or <|endoftext|>.
// Threads: any. Errors: DataError for tokens that come twice or whose id does not fit.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace sluice::text {

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool is_in_text = true;       // is looked for in the text
  bool is_single_word = false;  // not within a word
  bool strips_left = false;     // takes the spaces before it
  bool strips_right = false;
  bool is_normalized = true;  // is looked for in normalized text, in its own normal form
  bool is_special = false;    // decode() can leave it out
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizer& normalizer,
              const std::string& where);

  // Calls found(begin, end, id) for each part of the text, begin < end; id is kNoToken between tokens. The parts cover
  // the text. One begins where the last one ends, or, if that has stripped spaces which are a token, before that.
  using Found = std::function<void(std::size_t begin, std::size_t end, TokenId id)>;
  void for_each_part_of_original(std::string_view text, const Found& found) const {
    in_original_.run(text, *this, found);
  }
  void for_each_part_of_normalized(std::string_view text, const Found& found) const {
    in_normalized_.run(text, *this, found);
  }
  [[nodiscard]] bool has_normalized() const { return !in_normalized_.patterns.empty(); }

  [[nodiscard]] TokenId find(const std::string& content) const;
  [[nodiscard]] const std::string* decoded(TokenId id) const;  // content, or its normal form; null: not added
  [[nodiscard]] bool is_special(const std::string& token) const { return special_.contains(token); }
  [[nodiscard]] TokenId end_id() const { return end_id_; }

 private:
  // Finds the leftmost longest of its patterns.
  struct Finder {
    struct Pattern {
      std::string bytes;
      std::size_t token;
    };
    std::vector<Pattern> patterns;              // by first byte, longest first
    std::array<std::uint32_t, 257> first_of{};  // [byte]: its first pattern

    void sort();
    [[nodiscard]] const Pattern* match(std::string_view text) const;
    void run(std::string_view text, const AddedTokens& all, const Found& found) const;
  };

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, TokenId> ids_;  // by content
  std::unordered_map<TokenId, std::string> decoded_;
  std::unordered_set<std::string> special_;
  Finder in_original_, in_normalized_;
  TokenId end_id_ = 0;
};

}  // namespace sluice::text
