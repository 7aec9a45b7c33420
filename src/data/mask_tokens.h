// mask_tokens: hides tokens that a model is to find again, as BERT does: of the chosen tokens 80 % become the mask
// token, 10 % a random token, 10 % stay. `targets` become the chosen tokens, and kNoTarget elsewhere. Threads: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/fields.h"

namespace sluice::data {

struct MaskOptions {
  double share = 0;  // probability of a token to be chosen; 0: none are
  std::int64_t mask_id = 0;
  std::int64_t vocabulary = 0;          // random tokens are below
  std::vector<std::int64_t> kept = {};  // ids that are never chosen: special tokens
};

// Changes `inputs` in place and replaces `targets`. Padding is never chosen. key_of(row): of the random numbers.
void mask_tokens(Fields& fields, const MaskOptions& options, const std::function<std::uint64_t(std::size_t)>& key_of);

}  // namespace sluice::data
