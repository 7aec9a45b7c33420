#include "text/added_tokens.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

bool is_within_word(std::string_view text, std::size_t begin, std::size_t end) {
  const auto is_word_at = [&](std::size_t at) {
    const char* from = text.data() + at;
    return has_property(next_point(from), Property::kWord);
  };
  return (begin > 0 && is_word_at(last_character(text, begin))) || (end < text.size() && is_word_at(end));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizer& normalizer,
                         const std::string& where)
    : tokens_(std::move(tokens)), end_id_(vocabulary.end_id()) {
  auto next = static_cast<TokenId>(vocabulary.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (token.content.empty()) throw DataError(where, ": the added token with the id ", token.id, " is empty");
    if (!ids_.emplace(token.content, token.id).second) {
      throw DataError(where, ": added token \"", printable(token.content), "\" comes twice");
    }
    const TokenId known = vocabulary.find(token.content);
    const TokenId expected = known != kNoToken ? known : next++;
    if (token.id != expected) {
      throw DataError(where, ": added token \"", printable(token.content), "\" has the id ", token.id, ", expected ",
                      expected, known != kNoToken ? " as in the vocabulary" : ", the next free one");
    }
    const std::string normal = token.is_normalized ? normalizer.normalized(token.content) : token.content;
    decoded_.emplace(token.id, normal);
    if (token.is_special) special_.insert(token.content);
    if (token.is_in_text && !normal.empty())
      (token.is_normalized ? in_normalized_ : in_original_).patterns.push_back({normal, i});
    end_id_ = std::max(end_id_, token.id + 1);
  }
  in_original_.sort();
  in_normalized_.sort();
}

TokenId AddedTokens::find(const std::string& content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? kNoToken : found->second;
}

const std::string* AddedTokens::decoded(TokenId id) const {
  const auto found = decoded_.find(id);
  return found == decoded_.end() ? nullptr : &found->second;
}

void AddedTokens::Finder::sort() {
  const auto first_byte = [](const Pattern& pattern) { return static_cast<unsigned char>(pattern.bytes.front()); };
  std::ranges::stable_sort(patterns, [&](const Pattern& a, const Pattern& b) {
    return first_byte(a) != first_byte(b) ? first_byte(a) < first_byte(b) : a.bytes.size() > b.bytes.size();
  });
  for (unsigned byte = 0; byte <= 256; ++byte) {
    const auto from =
        std::find_if(patterns.begin(), patterns.end(), [&](const Pattern& p) { return first_byte(p) >= byte; });
    first_of[byte] = static_cast<std::uint32_t>(from - patterns.begin());
  }
}

const AddedTokens::Finder::Pattern* AddedTokens::Finder::match(std::string_view text) const {
  const auto byte = static_cast<unsigned char>(text.front());
  for (std::uint32_t i = first_of[byte]; i < first_of[byte + 1U]; ++i) {
    if (text.starts_with(patterns[i].bytes)) return &patterns[i];
  }
  return nullptr;
}

// In the steps of `tokenizers`: if a token strips the spaces after it and these are a token, too, both have them.
void AddedTokens::Finder::run(std::string_view text, const AddedTokens& all, const Found& found) const {
  std::size_t last_end = 0;    // of the last part
  std::size_t spaces_end = 0;  // of the last spaces that were stripped
  for (std::size_t at = 0; at < text.size() && !patterns.empty();) {
    const Pattern* pattern = match(text.substr(at));
    if (pattern == nullptr) {
      ++at;
      continue;
    }
    const AddedToken& token = all.tokens_[pattern->token];
    std::size_t begin = at;
    std::size_t end = at += pattern->bytes.size();
    if (token.is_single_word && is_within_word(text, begin, end)) continue;
    if (token.strips_left) begin = std::max(last_end, begin_of_spaces(text, begin, last_end));
    if (token.strips_right) end = spaces_end = end < spaces_end ? spaces_end : end_of_spaces(text, end);
    if (begin > last_end) found(last_end, begin, kNoToken);
    if (begin < end) found(begin, end, token.id);
    last_end = end;
  }
  if (last_end < text.size()) found(last_end, text.size(), kNoToken);
}

}  // namespace sluice::text
