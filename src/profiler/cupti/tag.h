// tag: encodes the owner of a launch in the 64 bits that CUPTI stores with it. From the high bits: phase 4, micro-batch
// 12, stage 10, replica 10, layer 16, twelve bits of 1. Numbers are stored plus one; numbers that do not fit become
// "none". No tag is 0. Pure.
#pragma once

#include <cstdint>

#include "core/action_marks.h"
#include "profiler/layer_log.h"

namespace sluice::cupti {

using Tag = std::uint64_t;
inline constexpr Tag kNoTag = 0;
using profiler::kNoLayer;

struct TagFields {
  ActionTag action;
  int layer = kNoLayer;

  bool operator==(const TagFields&) const = default;
};

namespace internal {
constexpr std::uint64_t packed(int number, int bits) {
  return number >= 0 && number + 1 < (1 << bits) ? static_cast<std::uint64_t>(number + 1) : 0;
}
constexpr int unpacked(Tag tag, int shift, int bits) {
  return static_cast<int>((tag >> shift) & ((std::uint64_t{1} << bits) - 1)) - 1;
}
}  // namespace internal

[[nodiscard]] constexpr Tag encode(const TagFields& fields) {
  const ActionTag& action = fields.action;
  return static_cast<Tag>(action.phase) << 60 | internal::packed(index(action.micro_batch), 12) << 48 |
         internal::packed(index(action.stage), 10) << 38 | internal::packed(index(action.replica), 10) << 28 |
         internal::packed(fields.layer, 16) << 12 | 0xFFF;
}

[[nodiscard]] constexpr TagFields decode(Tag tag) {
  return {{static_cast<Phase>(tag >> 60), ReplicaId{internal::unpacked(tag, 28, 10)},
           StageId{internal::unpacked(tag, 38, 10)}, MicroBatchId{internal::unpacked(tag, 48, 12)}},
          internal::unpacked(tag, 12, 16)};
}

}  // namespace sluice::cupti
