#include "tune/cut_memory.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace sluice::tune {
namespace {

std::vector<int> ends_of_stages(const Partition& partition) {
  std::vector<int> ends(partition.layers_per_stage.size());
  std::partial_sum(partition.layers_per_stage.begin(), partition.layers_per_stage.end(), ends.begin());
  return ends;
}

}  // namespace

CutMemory::CutMemory(std::span<const LayerCost> layers, const pipeline::Schedule& schedule, const CutRules& rules,
                     std::vector<std::uint64_t> frozen)
    : rules_(rules), possible_(layers, schedule, rules), frozen_(std::move(frozen)), stages_(possible_.devices()) {
  for (int stage = 0; stage < possible_.count(); ++stage) stages_[possible_.owner(stage)].push_back(stage);
}

std::vector<CutMemory::Mask> CutMemory::masks_to_try(int stages) const {
  const Mask all = (Mask{1} << static_cast<unsigned>(stages)) - 1;
  if (rules_.recompute == Recompute::kLayer) return {all};
  if (rules_.recompute == Recompute::kNone || rules_.memory_limit == 0) return {0};
  if (stages > kMostOpenStages) return {0, all};
  std::vector<Mask> masks(all + 1);
  std::iota(masks.begin(), masks.end(), Mask{0});
  std::ranges::stable_sort(masks, {}, [](Mask mask) { return std::popcount(mask); });
  return masks;
}

CutMemory::DeviceRoom CutMemory::find_room(int device, std::span<const int> ends, int placed) {
  DeviceRoom room{.choices = {}, .least_peak = UINT64_MAX};
  for (const Mask mask : masks_to_try(placed)) {
    if (std::ranges::any_of(room.choices, [&](Mask smaller) { return (smaller & mask) == smaller; })) continue;
    std::vector<pipeline::StageBytes> bytes(possible_.count());
    for (int i = 0; i < placed; ++i) {
      const int stage = stages_[device][i];
      bytes[stage] = possible_.bytes(stage, stage > 0 ? ends[stage - 1] : 0, ends[stage],
                                     ((mask >> static_cast<unsigned>(i)) & 1U) != 0);
    }
    const std::uint64_t peak = possible_.peak(device, bytes) + frozen_[device];
    room.least_peak = std::min(room.least_peak, peak);
    if (rules_.memory_limit == 0 || peak <= rules_.memory_limit) room.choices.push_back(mask);
  }
  return room;
}

const CutMemory::DeviceRoom& CutMemory::room_alone(int device, int begin, int end) {
  const auto layers = static_cast<std::uint64_t>(possible_.layers() + 1);
  const std::uint64_t key = (static_cast<std::uint64_t>(device) * layers + static_cast<std::uint64_t>(begin)) * layers +
                            static_cast<std::uint64_t>(end);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  std::vector<int> ends(possible_.count(), begin);
  ends[stages_[device].front()] = end;
  return known_.emplace(key, find_room(device, ends, 1)).first->second;
}

CutMemory::DeviceRoom CutMemory::room(int device, std::span<const int> ends) {
  const std::vector<int>& own = stages_[device];
  if (own.size() == 1) {
    const int stage = own.front();
    return room_alone(device, stage > 0 ? ends[stage - 1] : 0, ends[stage]);
  }
  const auto placed = std::ranges::count_if(own, [&](int stage) { return stage < static_cast<int>(ends.size()); });
  return find_room(device, ends, static_cast<int>(placed));
}

bool CutMemory::has_room(std::span<const int> ends) {
  if (rules_.memory_limit == 0) return true;
  return !room(possible_.owner(static_cast<int>(ends.size()) - 1), ends).choices.empty();
}

std::vector<std::vector<bool>> CutMemory::choices(const Partition& partition) {
  if (rules_.memory_limit == 0) return {std::vector<bool>(possible_.count(), rules_.recompute == Recompute::kLayer)};
  const std::vector<int> ends = ends_of_stages(partition);
  std::vector<std::vector<bool>> all{std::vector<bool>(possible_.count(), false)};
  for (int device = 0; device < possible_.devices(); ++device) {
    std::vector<std::vector<bool>> longer;
    const DeviceRoom of_device = room(device, ends);
    for (const std::vector<bool>& before : all) {
      for (const Mask mask : of_device.choices) {
        std::vector<bool>& choice = longer.emplace_back(before);
        for (std::size_t i = 0; i < stages_[device].size(); ++i) choice[stages_[device][i]] = ((mask >> i) & 1U) != 0;
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::vector<std::uint64_t> CutMemory::least_peaks(const Partition& partition) {
  const std::vector<int> ends = ends_of_stages(partition);
  std::vector<std::uint64_t> peaks;
  for (int device = 0; device < possible_.devices(); ++device) peaks.push_back(room(device, ends).least_peak);
  return peaks;
}

std::uint64_t CutMemory::excess(const Partition& partition) {
  if (rules_.memory_limit == 0) return 0;
  std::uint64_t excess = 0;
  for (const std::uint64_t peak : least_peaks(partition))
    excess += peak > rules_.memory_limit ? peak - rules_.memory_limit : 0;
  return excess;
}

}  // namespace sluice::tune
