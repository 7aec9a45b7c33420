// ids: strong integer types for indices from 0, so that the compiler rejects a stage as a micro-batch.
#pragma once

#include <compare>

namespace sluice {

enum class DeviceId : int {};  // position among the devices of one replica; a device runs one or more stages
enum class StageId : int {};
enum class MicroBatchId : int {};  // position in the mini-batch of one replica
enum class ReplicaId : int {};     // position among the replicas of this process
enum class ParamId : int {};

template <typename Id>
[[nodiscard]] constexpr int index(Id id) {
  return static_cast<int>(id);
}

}  // namespace sluice
