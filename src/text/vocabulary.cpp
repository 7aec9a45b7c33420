#include "text/vocabulary.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace sluice::text {

void Vocabulary::add(std::string_view token, std::int64_t id, const std::string& where) {
  // A small file must not need a large table.
  const auto end = static_cast<std::int64_t>(std::min<std::size_t>(1U << 24, 4 * std::max(expected_, size()) + 65536));
  if (id < 0 || id >= end) {
    throw DataError(where, ": token \"", printable(token), "\" has the id ", id, ", expected 0 to ", end - 1);
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
