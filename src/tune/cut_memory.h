// cut_memory: which cuts have room, and what has to be computed again for that. Where recomputation is open, a device
// has the choices in which no stage could do without. Only src/tune includes this. Not here: a stage's bytes
// (memory.h). Pure but for what it keeps of answers: a thread has its own.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "pipeline/schedule/action.h"
#include "tune/partition.h"
#include "tune/possible_stages.h"

namespace sluice::tune {

class CutMemory {
 public:
  // frozen: [device], bytes besides those of the stages. The layers, the schedule and the rules outlive this.
  CutMemory(std::span<const LayerCost> layers, const pipeline::Schedule& schedule, const CutRules& rules,
            std::vector<std::uint64_t> frozen);

  // Whether the device of the last of these first stages has room for those of them that are its own.
  [[nodiscard]] bool has_room(std::span<const int> ends);
  // [choice][stage]: whether it recomputes. Nothing: there is no room.
  [[nodiscard]] std::vector<std::vector<bool>> choices(const Partition& partition);
  // That all devices exceed the limit by, at best.
  [[nodiscard]] std::uint64_t excess(const Partition& partition);
  // [device]: what it needs at best. With the limit, all that does not exceed it is as good.
  [[nodiscard]] std::vector<std::uint64_t> least_peaks(const Partition& partition);

  // More stages than this on a device recompute all together or not at all, where that is open.
  static constexpr int kMostOpenStages = 6;

 private:
  using Mask = std::uint32_t;  // bit i: the i-th stage of the device recomputes
  struct DeviceRoom {
    std::vector<Mask> choices;
    std::uint64_t least_peak = 0;
  };

  [[nodiscard]] DeviceRoom room(int device, std::span<const int> ends);
  [[nodiscard]] const DeviceRoom& room_alone(int device, int begin, int end);
  [[nodiscard]] DeviceRoom find_room(int device, std::span<const int> ends, int placed);
  [[nodiscard]] std::vector<Mask> masks_to_try(int stages) const;

  const CutRules& rules_;
  PossibleStages possible_;
  std::vector<std::uint64_t> frozen_;
  std::vector<std::vector<int>> stages_;                 // [device]
  std::unordered_map<std::uint64_t, DeviceRoom> known_;  // of devices with one stage
};

}  // namespace sluice::tune
