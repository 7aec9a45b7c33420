// sample_kind: what a sample of a data set is, and so what a model takes.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class SampleKind : std::uint8_t {
  kImage,   // pixels, and a class to be told from them
  kTokens,  // a sequence of tokens, and at every position the one that follows
};

[[nodiscard]] constexpr std::string_view name_of(SampleKind kind) {
  return kind == SampleKind::kImage ? "images" : "tokens";
}

}  // namespace sluice
