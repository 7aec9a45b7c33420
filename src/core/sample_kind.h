// sample_kind: the kind of samples that a data set holds and a model takes.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class SampleKind : std::uint8_t {
  kImage,
  kTokens,  // a token sequence; the target at each position is the next token
};

[[nodiscard]] constexpr std::string_view name_of(SampleKind kind) {
  return kind == SampleKind::kImage ? "images" : "tokens";
}

}  // namespace sluice
