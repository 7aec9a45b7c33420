// text: sets of token sequences. Sequence i holds the tokens i * context .. (i + 1) * context: the inputs are all but
// the last and the targets all but the first, so that every token of a text but its first is a target once. What is
// left at the end is too short for a sequence and left out. text: one file, a token per byte; its last tenth is the
// test split. toy: drawn from a seed, needs no file. Not here: tokenisers. Errors: ConfigError, DataError (a file that
// is missing, too large or too short).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sluice::data {

// Held in memory. Any bytes will do.
[[nodiscard]] std::unique_ptr<Dataset> open_text(const std::filesystem::path& file, std::int64_t context, Split split);

struct ToyOptions {
  std::int64_t samples = 10000;  // of the training split; the test split has a fifth, at least one
  std::int64_t context = 64;     // tokens of an input
  std::uint64_t seed = 0;
};
inline constexpr std::int64_t kToyTokens = 64;
// Nats a token: what a model that has learned the chain still does not know, the least loss it can reach.
inline constexpr double kToyEntropy = 1.2130075659799042;  // 7/4 ln 2

// A Markov chain: behind each token come four others with probabilities 1/2, 1/4, 1/8, 1/8. Both splits draw from the
// one chain of the seed. A sample is a pure function of (seed, split, index).
[[nodiscard]] std::unique_ptr<Dataset> make_toy(const ToyOptions& options, Split split);

}  // namespace sluice::data
