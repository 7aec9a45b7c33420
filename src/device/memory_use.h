// memory_use: what takes the memory of a device, in bytes of tensors as they were asked for. Values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::device {

enum class MemoryKind : std::uint8_t {
  kParameters,          // and running statistics
  kGradients,           // of the parameters
  kOptimizer,           // its state
  kActivations,         // and whatever else a pass takes
  kTransformedWeights,  // copies of parameters in the form that a kernel takes, while the micro-batches of a pass use
                        // them
};
inline constexpr std::array kMemoryKinds{MemoryKind::kParameters, MemoryKind::kGradients, MemoryKind::kOptimizer,
                                         MemoryKind::kActivations, MemoryKind::kTransformedWeights};
[[nodiscard]] std::string_view to_word(MemoryKind kind);  // "parameters"

struct BytesByKind {
  std::array<std::uint64_t, kMemoryKinds.size()> bytes{};

  [[nodiscard]] std::uint64_t operator[](MemoryKind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] std::uint64_t& operator[](MemoryKind kind) { return bytes[static_cast<std::size_t>(kind)]; }
  bool operator==(const BytesByKind&) const = default;
};

struct MemoryUse {
  std::uint64_t limit = 0;  // 0: none
  std::uint64_t current = 0;
  std::uint64_t peak = 0;
  BytesByKind by_kind{};          // of current
  BytesByKind by_kind_at_peak{};  // of peak
  std::uint64_t cached = 0;       // in freed blocks that wait for the next request
  std::uint64_t fetches = 0;      // requests that no cached block could serve
};

}  // namespace sluice::device
