// ids: strong integer types, so that a stage is never passed where a micro-batch is meant.
#pragma once

#include <compare>

namespace sluice {

enum class DeviceId : int {};      // position among the devices of one replica, 0 = first; it runs one stage or more
enum class StageId : int {};       // position in the pipeline, 0 = first
enum class MicroBatchId : int {};  // position in the mini-batch of one replica, 0 = first
enum class ReplicaId : int {};     // local replica, 0 = first
enum class ParamId : int {};       // position in the model's parameter list

template <typename Id>
[[nodiscard]] constexpr int index(Id id) {
  return static_cast<int>(id);
}

}  // namespace sluice
