// cut_memory: finds which cuts fit in memory and which stages must recompute. If recomputation is open, it returns the
// choices from which no recomputing stage can be dropped. Internal to src/tune. It caches answers, so each thread needs
// its own instance.
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
  // frozen: [device], bytes besides its stages. The layers, the schedule and the rules must outlive this object.
  CutMemory(std::span<const LayerCost> layers, const pipeline::Schedule& schedule, const CutRules& rules,
            std::vector<std::uint64_t> frozen);

  // Whether the device of the last of these first stages has room for its stages among them.
  [[nodiscard]] bool has_room(std::span<const int> ends);
  [[nodiscard]] std::vector<std::vector<bool>> choices(const Partition& partition);
  // Bytes by which all devices together exceed the limit in the best case.
  [[nodiscard]] std::uint64_t excess(const Partition& partition);
  // [device]: bytes needed in the best case. With a limit, any value within it counts as best.
  [[nodiscard]] std::vector<std::uint64_t> least_peaks(const Partition& partition);

  // Devices with more stages recompute all or none of them if recomputation is open.
  static constexpr int kMostOpenStages = 6;

 private:
  using Mask = std::uint32_t;  // bit i: the device's i-th stage recomputes
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
  std::vector<std::vector<int>> stages_;
  std::unordered_map<std::uint64_t, DeviceRoom> known_;
};

}  // namespace sluice::tune
