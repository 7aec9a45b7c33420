#include "tune/device_search.h"

#include <algorithm>
#include <vector>

namespace sluice::tune {
namespace {

using pipeline::StageBytes;

class DeviceSearch {
 public:
  DeviceSearch(const PossibleStages& stages, double bound)
      : stages_(stages), value_{.largest = bound}, seconds_(stages.devices(), 0.0), bytes_(stages.count()) {
    last_stage_.assign(stages.devices(), 0);
    for (int s = 0; s < stages.count(); ++s) last_stage_[stages.owner(s)] = s;
  }

  [[nodiscard]] DeviceSearchResult run() {
    place(0, 0);
    return {.cut = best_, .is_complete = tries_ < kMostTries};
  }

 private:
  void place(int stage, int begin) {
    if (stage == stages_.count()) {
      const CutValue value{*std::ranges::max_element(seconds_), squares_, borders_};
      if (value.is_better_than(value_)) value_ = value, best_ = current_;
      return;
    }
    const int left = stages_.count() - stage - 1;
    const int first_end = left == 0 ? stages_.layers() : begin + 1;
    for (int end = first_end; end <= stages_.layers() - left; ++end) {
      for (const bool recomputes : stages_.choices(stage)) {
        if (++tries_ >= kMostTries) return;
        try_stage(stage, begin, end, recomputes);
      }
      if (seconds_[stages_.owner(stage)] + stages_.seconds(begin, end, false) > value_.largest) return;
    }
  }

  void try_stage(int stage, int begin, int end, bool recomputes) {
    if (!stages_.allows(stage, begin, end)) return;
    const int device = stages_.owner(stage);
    const double seconds = stages_.seconds(begin, end, recomputes);
    const double before = seconds_[device], squares_before = squares_, borders_before = borders_;
    if (seconds_[device] + seconds > value_.largest) return;
    seconds_[device] += seconds;
    squares_ += seconds * seconds;
    borders_ += stages_.border(stage, end);
    if (stages_.has_limit()) bytes_[stage] = stages_.bytes(stage, begin, end, recomputes);
    if (rest_has_room(stage, end) && stages_.fits(device, bytes_)) {
      current_.partition.layers_per_stage.push_back(end - begin);
      current_.recompute.push_back(recomputes);
      place(stage + 1, end);
      current_.partition.layers_per_stage.pop_back();
      current_.recompute.pop_back();
    }
    bytes_[stage] = {};
    seconds_[device] = before;
    squares_ = squares_before;
    borders_ = borders_before;
  }

  [[nodiscard]] bool rest_has_room(int stage, int end) const {
    double room = 0;
    for (int device = 0; device < stages_.devices(); ++device)
      if (last_stage_[device] > stage) room += value_.largest - seconds_[device];
    return stages_.seconds(end, stages_.layers(), false) <= room;
  }

  const PossibleStages& stages_;
  CutValue value_;  // of the best cut
  std::vector<double> seconds_;
  double squares_ = 0;
  double borders_ = 0;
  std::vector<StageBytes> bytes_;  // [stage]; default if not yet placed
  std::vector<int> last_stage_;
  Cut current_;
  std::optional<Cut> best_;
  int tries_ = 0;
};

}  // namespace

DeviceSearchResult least_slowest_device(const PossibleStages& stages, double bound) {
  return DeviceSearch(stages, bound).run();
}

}  // namespace sluice::tune
