#include "text/vocabulary.h"

#include "core/error.h"
#include "core/text.h"

namespace sluice::text {

void Vocabulary::add(std::string_view token, std::int64_t id, const std::string& where) {
  constexpr std::int64_t kMostIds = std::int64_t{1} << 24;
  if (id < 0 || id >= kMostIds) {
    throw DataError(where, ": token \"", printable(token), "\" has the id ", id, ", expected 0 to ", kMostIds - 1);
  }
  const auto index = static_cast<std::size_t>(id);
  if (has(static_cast<TokenId>(id))) {
    throw DataError(where, ": tokens \"", printable(tokens_[index]), "\" and \"", printable(token),
                    "\" both have the id ", id);
  }
  if (!map_.add(token, static_cast<TokenId>(id))) {
    throw DataError(where, ": token \"", printable(token), "\" comes twice, with the ids ", map_.find(token), " and ",
                    id);
  }
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  tokens_[index] = token;
  if (token.empty()) empty_id_ = static_cast<TokenId>(id);
}

}  // namespace sluice::text
