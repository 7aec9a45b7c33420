// text: data sets of token sequences. Sequence i holds the tokens i * context .. (i + 1) * context: inputs are all but
// the last, targets all but the first; a short rest is left out. text: one file, a token per byte; its last tenth is
// the test split. toy: drawn from a seed. Errors: ConfigError; DataError for a file that is missing, too large or too
// short.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sluice::data {

[[nodiscard]] std::unique_ptr<Dataset> open_text(const std::filesystem::path& file, std::int64_t context, Split split);

struct ToyOptions {
  std::int64_t samples = 10000;  // training split; the test split has a fifth, at least one
  std::int64_t context = 64;
  std::uint64_t seed = 0;
};
inline constexpr std::int64_t kToyTokens = 64;
// Entropy of the toy chain in nats per token: the lowest loss that a model can reach.
inline constexpr double kToyEntropy = 1.2130075659799042;  // 7/4 ln 2

// A Markov chain: each token has four successors with probabilities 1/2, 1/4, 1/8, 1/8; both splits use one chain.
[[nodiscard]] std::unique_ptr<Dataset> make_toy(const ToyOptions& options, Split split);

}  // namespace sluice::data
