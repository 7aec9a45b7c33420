// flops: floating-point operation counts by kind of product. nn/flops.h counts them.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

namespace sluice {

enum class ProductKind : std::uint8_t { kConvolution, kLinear, kAttention };
inline constexpr int kProductKinds = 3;

[[nodiscard]] constexpr const char* name_of(ProductKind kind) {
  switch (kind) {
    case ProductKind::kConvolution: return "convolution";
    case ProductKind::kLinear: return "linear";
    case ProductKind::kAttention: return "attention";
  }
  return "";
}

using FlopCount = std::array<double, kProductKinds>;

inline void add_to(FlopCount& sum, const FlopCount& other) {
  for (int kind = 0; kind < kProductKinds; ++kind) sum[kind] += other[kind];
}

[[nodiscard]] inline double all_flops(const FlopCount& count) {
  return std::accumulate(count.begin(), count.end(), 0.0);
}

}  // namespace sluice
