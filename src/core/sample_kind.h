// sample_kind: the kind of samples that a data set holds and a model takes.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class SampleKind : std::uint8_t {
  kImage,
  kTokens,   // a token sequence; the target at each position is the next token
  kTensors,  // tensors under names that the model's forward() has
};

[[nodiscard]] constexpr std::string_view name_of(SampleKind kind) {
  switch (kind) {
    case SampleKind::kImage: return "images";
    case SampleKind::kTokens: return "tokens";
    case SampleKind::kTensors: break;
  }
  return "tensors";
}

}  // namespace sluice
