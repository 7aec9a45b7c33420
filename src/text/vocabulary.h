// vocabulary: the tokens of a model by id. Threads: any. Errors: add() throws DataError for an id or a token that comes
// twice, and for an id out of range.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/token_map.h"

namespace sluice::text {

class Vocabulary {
 public:
  // expected: number of tokens.
  explicit Vocabulary(std::size_t expected = 0) : map_(expected), expected_(expected) {}

  // where: the file, for messages.
  void add(std::string_view token, std::int64_t id, const std::string& where);

  [[nodiscard]] TokenId find(std::string_view token) const { return map_.find(token); }
  [[nodiscard]] bool has(TokenId id) const {
    return id >= 0 && id < end_id() && (id == empty_id_ || !tokens_[static_cast<std::size_t>(id)].empty());
  }
  [[nodiscard]] const std::string& token(TokenId id) const { return tokens_[static_cast<std::size_t>(id)]; }

  [[nodiscard]] std::size_t size() const { return map_.size(); }
  [[nodiscard]] TokenId end_id() const { return static_cast<TokenId>(tokens_.size()); }  // one more than the largest id

 private:
  TokenMap map_;
  std::size_t expected_;
  std::vector<std::string> tokens_;  // [id]; empty: no token
  TokenId empty_id_ = kNoToken;      // id of the token "", if there is one
};

}  // namespace sluice::text
