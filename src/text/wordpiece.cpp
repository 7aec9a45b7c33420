#include "text/models.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

class WordPiece final : public Model {
 public:
  WordPiece(Vocabulary vocabulary, const WordPieceOptions& options, const std::string& where)
      : Model(std::move(vocabulary)),
        unknown_(this->vocabulary().find(options.unknown)),
        longest_(options.longest_word) {
    if (unknown_ == kNoToken) {
      throw DataError(where, ": the unknown token \"", printable(options.unknown), "\" is not in the vocabulary");
    }
    for (TokenId id = 0; id < this->vocabulary().end_id(); ++id) {
      if (!this->vocabulary().has(id)) continue;
      std::string_view token = this->vocabulary().token(id);
      beginnings_.add(token, id);
      if (!token.starts_with(options.continuation)) continue;
      token.remove_prefix(options.continuation.size());
      continuations_.add(token, id);
    }
  }

  void tokenize(std::string_view word, std::vector<WordToken>& tokens) const override {
    const std::size_t before = tokens.size();
    const std::size_t end = is_too_long(word) ? 0 : word.size();
    const TokenMap* known = &beginnings_;
    for (std::size_t begin = 0; begin < end; known = &continuations_) {
      const WordToken token = longest_token(word.substr(begin), *known);
      if (token.id == kNoToken) {
        tokens.resize(before);
        break;
      }
      tokens.push_back(token);
      begin += token.bytes;
    }
    if (tokens.size() == before) tokens.push_back({unknown_, static_cast<std::uint32_t>(word.size())});
  }

 private:
  [[nodiscard]] bool is_too_long(std::string_view word) const {
    return word.size() > longest_ && (word.size() > 4 * longest_ || count_points(word) > longest_);
  }

  [[nodiscard]] static WordToken longest_token(std::string_view text, const TokenMap& known) {
    for (std::size_t size = std::min(text.size(), known.longest()); size > 0; --size) {
      if (size < text.size() && !begins_character(text[size])) continue;
      if (const TokenId id = known.find(text.substr(0, size)); id != kNoToken) {
        return {id, static_cast<std::uint32_t>(size)};
      }
    }
    return {kNoToken, 0};
  }

  TokenId unknown_;
  std::size_t longest_;
  TokenMap beginnings_, continuations_;  // tokens that begin a word; tokens after "##", without it
};

}  // namespace

std::unique_ptr<Model> make_wordpiece(Vocabulary vocabulary, const WordPieceOptions& options,
                                      const std::string& where) {
  return std::make_unique<WordPiece>(std::move(vocabulary), options, where);
}

}  // namespace sluice::text
