// memory_use: memory use of a device, in requested bytes of tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::device {

enum class MemoryKind : std::uint8_t {
  kParameters,  // includes running statistics
  kGradients,
  kOptimizer,
  kActivations,         // includes all other memory of a pass
  kTransformedWeights,  // copies of parameters in a kernel's format, used by the micro-batches of a pass
};
inline constexpr std::array kMemoryKinds{MemoryKind::kParameters, MemoryKind::kGradients, MemoryKind::kOptimizer,
                                         MemoryKind::kActivations, MemoryKind::kTransformedWeights};
[[nodiscard]] std::string_view to_word(MemoryKind kind);

struct BytesByKind {
  std::array<std::uint64_t, kMemoryKinds.size()> bytes{};

  [[nodiscard]] std::uint64_t operator[](MemoryKind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] std::uint64_t& operator[](MemoryKind kind) { return bytes[static_cast<std::size_t>(kind)]; }
  bool operator==(const BytesByKind&) const = default;
};

struct MemoryUse {
  std::uint64_t limit = 0;
  std::uint64_t current = 0;
  std::uint64_t peak = 0;
  BytesByKind by_kind{};
  BytesByKind by_kind_at_peak{};
  std::uint64_t cached = 0;   // in freed blocks kept for reuse
  std::uint64_t fetches = 0;  // requests that no cached block could serve
};

}  // namespace sluice::device
