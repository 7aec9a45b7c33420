#include "tune/partition.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "core/check.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/simulate.h"
#include "tune/memory.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;
using pipeline::StageBytes;

constexpr double kNever = std::numeric_limits<double>::infinity();

// Value of a cut of the first layers: the largest stage first, then evenness.
struct CutValue {
  double largest = kNever;
  double squares = kNever;

  auto operator<=>(const CutValue&) const = default;
};

// What a stage of the layers [begin, end) costs in a unit to be minimised; kNever where it may not be.
using StageValue = std::function<double(int stage, int begin, int end)>;

// Nothing where no cut is allowed.
std::optional<Partition> least_largest_stage(int layers, int stages, const StageValue& value_of) {
  check(stages >= 1 && stages <= layers, "a cut needs 1 <= stages <= layers");
  // best[s][n]: the first n layers in s stages; cut[s][n]: where its last stage begins.
  std::vector<std::vector<CutValue>> best(stages + 1, std::vector<CutValue>(layers + 1));
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(layers + 1, 0));
  best[0][0] = {0.0, 0.0};
  for (int s = 1; s <= stages; ++s) {
    for (int n = s; n <= layers - (stages - s); ++n) {
      for (int begin = s - 1; begin < n; ++begin) {
        if (best[s - 1][begin].largest == kNever) continue;
        const double last = value_of(s - 1, begin, n);
        const CutValue value{std::max(best[s - 1][begin].largest, last), best[s - 1][begin].squares + last * last};
        if (value < best[s][n]) {
          best[s][n] = value;
          cut[s][n] = begin;
        }
      }
    }
  }
  if (best[stages][layers].largest == kNever) return std::nullopt;
  Partition partition{std::vector<int>(stages)};
  for (int s = stages, end = layers; s > 0; --s) {
    partition.layers_per_stage[s - 1] = end - cut[s][end];
    end = cut[s][end];
  }
  return partition;
}

// The stages that layers can make: their times, their bytes, and what a device holds of them.
class Stages {
 public:
  Stages(std::span<const LayerCost> costs, const Schedule& schedule, const CutRules& rules)
      : costs_(costs), schedule_(schedule), rules_(rules), owners_(pipeline::stage_owners(schedule)) {
    seconds_.push_back(0), forward_seconds_.push_back(0);
    for (const LayerCost& cost : costs) {
      seconds_.push_back(seconds_.back() + cost.seconds(rules.micro_batch));
      forward_seconds_.push_back(forward_seconds_.back() + cost.forward.at(rules.micro_batch));
    }
  }

  [[nodiscard]] int layers() const { return static_cast<int>(costs_.size()); }
  [[nodiscard]] int count() const { return schedule_.stages; }
  [[nodiscard]] int devices() const { return static_cast<int>(schedule_.devices.size()); }
  [[nodiscard]] int owner(int stage) const { return owners_[stage]; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] std::vector<bool> choices() const {
    if (rules_.recompute == Recompute::kOpen && rules_.memory_limit > 0) return {false, true};
    return {rules_.recompute == Recompute::kLayer};
  }
  [[nodiscard]] double seconds(int begin, int end, bool recomputes) const {
    return seconds_[end] - seconds_[begin] + (recomputes ? forward_seconds_[end] - forward_seconds_[begin] : 0);
  }
  [[nodiscard]] bool allows(int stage, int begin, int end) const {
    if (!rules_.partition) return true;
    const auto& counts = rules_.partition->layers_per_stage;
    return begin == std::accumulate(counts.begin(), counts.begin() + stage, 0) && end - begin == counts[stage];
  }
  [[nodiscard]] StageBytes bytes(int stage, int begin, int end, bool recomputes) const {
    const StagePlace place{.is_first = stage == 0, .is_last = stage + 1 == count(), .recomputes = recomputes};
    return device_bytes(costs_.subspan(begin, end - begin), rules_.most_samples, place, rules_.shares_memory);
  }
  [[nodiscard]] std::vector<StageBytes> bytes(const Partition& partition, const std::vector<bool>& recompute) const {
    std::vector<StageBytes> all;
    for (int s = 0, begin = 0; s < count(); ++s) {
      const int end = begin + partition.layers_per_stage[s];
      all.push_back(bytes(s, begin, end, !recompute.empty() && recompute[s]));
      begin = end;
    }
    return all;
  }
  // [stage] of which those of the device count.
  [[nodiscard]] std::uint64_t peak(int device, const std::vector<StageBytes>& stages) const {
    return static_cast<std::uint64_t>(pipeline::peak_bytes_of(schedule_, device, stages));
  }
  [[nodiscard]] bool fits(int device, const std::vector<StageBytes>& stages) const {
    return rules_.memory_limit == 0 || peak(device, stages) <= rules_.memory_limit;
  }
  // Alone on its device.
  [[nodiscard]] std::uint64_t peak_alone(int stage, const StageBytes& bytes) const {
    std::vector<StageBytes> stages(count());
    stages[stage] = bytes;
    return peak(owner(stage), stages);
  }

 private:
  std::span<const LayerCost> costs_;
  const Schedule& schedule_;
  const CutRules& rules_;
  std::vector<int> owners_;
  std::vector<double> seconds_, forward_seconds_;  // of the layers before
};

// Whether a stage recomputes: where that is open, only if it does not fit otherwise.
std::optional<bool> fitting_choice(const Stages& stages, const CutRules& rules, int stage, int begin, int end) {
  if (!stages.allows(stage, begin, end)) return std::nullopt;
  for (const bool recomputes : stages.choices()) {
    if (rules.memory_limit == 0) return recomputes;
    if (stages.peak_alone(stage, stages.bytes(stage, begin, end, recomputes)) <= rules.memory_limit) return recomputes;
  }
  return std::nullopt;
}

// Exact with one stage a device; with several it looks at each stage alone.
std::optional<Cut> cut_by_stage(const Stages& stages, const CutRules& rules) {
  const auto choice = [&](int stage, int begin, int end) { return fitting_choice(stages, rules, stage, begin, end); };
  const auto partition = least_largest_stage(stages.layers(), stages.count(), [&](int stage, int begin, int end) {
    const auto recomputes = choice(stage, begin, end);
    return recomputes ? stages.seconds(begin, end, *recomputes) : kNever;
  });
  if (!partition) return std::nullopt;
  Cut cut{.partition = *partition};
  for (int s = 0, begin = 0; s < stages.count(); ++s) {
    const int end = begin + partition->layers_per_stage[s];
    cut.recompute.push_back(*choice(s, begin, end));
    begin = end;
  }
  return cut;
}

// Every cut, stage by stage, but for those that cannot be better than the best one so far.
class DeviceSearch {
 public:
  DeviceSearch(const Stages& stages, double bound)
      : stages_(stages), value_{.largest = bound}, seconds_(stages.devices(), 0.0), bytes_(stages.count()) {
    last_stage_.assign(stages.devices(), 0);
    for (int s = 0; s < stages.count(); ++s) last_stage_[stages.owner(s)] = s;
  }

  // Nothing where all of them have a device slower than `bound`.
  [[nodiscard]] std::optional<Cut> run() {
    place(0, 0);
    if (best_) best_->is_proven = visits_ < kMostVisits;
    return best_;
  }
  [[nodiscard]] bool is_complete() const { return visits_ < kMostVisits; }

 private:
  static constexpr int kMostVisits = 2'000'000;  // about a second

  void place(int stage, int begin) {
    if (stage == stages_.count()) {
      const CutValue value{*std::ranges::max_element(seconds_), squares_};
      if (value < value_) value_ = value, best_ = current_;
      return;
    }
    const int left = stages_.count() - stage - 1;
    const int first_end = left == 0 ? stages_.layers() : begin + 1;
    for (int end = first_end; end <= stages_.layers() - left; ++end) {
      for (const bool recomputes : stages_.choices()) {
        if (++visits_ >= kMostVisits) return;
        try_stage(stage, begin, end, recomputes);
      }
      // Longer ones take longer.
      if (seconds_[stages_.owner(stage)] + stages_.seconds(begin, end, false) > value_.largest) return;
    }
  }

  void try_stage(int stage, int begin, int end, bool recomputes) {
    if (!stages_.allows(stage, begin, end)) return;
    const int device = stages_.owner(stage);
    const double seconds = stages_.seconds(begin, end, recomputes);
    const double before = seconds_[device], squares_before = squares_;
    if (seconds_[device] + seconds > value_.largest) return;
    seconds_[device] += seconds;
    squares_ += seconds * seconds;
    bytes_[stage] = stages_.bytes(stage, begin, end, recomputes);
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
  }

  // The layers that are left go to devices that still have stages to come.
  [[nodiscard]] bool rest_has_room(int stage, int end) const {
    double room = 0;
    for (int device = 0; device < stages_.devices(); ++device)
      if (last_stage_[device] > stage) room += value_.largest - seconds_[device];
    return stages_.seconds(end, stages_.layers(), false) <= room;
  }

  const Stages& stages_;
  CutValue value_;                 // of the best one
  std::vector<double> seconds_;    // [device]
  double squares_ = 0;             // of the stages' seconds
  std::vector<StageBytes> bytes_;  // [stage]; nothing where none is placed yet
  std::vector<int> last_stage_;    // [device]
  Cut current_;
  std::optional<Cut> best_;
  int visits_ = 0;
};

bool fits_everywhere(const Stages& stages, const Cut& cut) {
  const auto bytes = stages.bytes(cut.partition, cut.recompute);
  for (int device = 0; device < stages.devices(); ++device)
    if (!stages.fits(device, bytes)) return false;
  return true;
}

double slowest_device(const Stages& stages, const Cut& cut) {
  std::vector<double> seconds(stages.devices(), 0.0);
  for (int s = 0, begin = 0; s < stages.count(); ++s) {
    const int end = begin + cut.partition.layers_per_stage[s];
    seconds[stages.owner(s)] += stages.seconds(begin, end, cut.recompute[s]);
    begin = end;
  }
  return *std::ranges::max_element(seconds);
}

double makespan(std::span<const LayerCost> costs, const Schedule& schedule, const Cut& cut, double micro_batch) {
  pipeline::Costs times;
  for (std::size_t s = 0, layer = 0; s < cut.partition.layers_per_stage.size(); ++s) {
    pipeline::StepCost stage{.forward = 0, .input = 0, .weight = 0};
    for (int i = 0; i < cut.partition.layers_per_stage[s]; ++i, ++layer) {
      stage.forward += costs[layer].forward.at(micro_batch);
      stage.input += costs[layer].input_gradient.at(micro_batch);
      stage.weight += costs[layer].weight_gradient.at(micro_batch);
    }
    if (cut.recompute[s]) stage.input += stage.forward;
    times.stages.push_back(stage);
  }
  return pipeline::simulate(schedule, times).makespan;
}

Cut smallest_cut(const Stages& stages, const CutRules& rules) {
  const bool recomputes = rules.recompute != Recompute::kNone;
  const auto partition = least_largest_stage(stages.layers(), stages.count(), [&](int stage, int begin, int end) {
    if (!stages.allows(stage, begin, end)) return kNever;
    return static_cast<double>(stages.peak_alone(stage, stages.bytes(stage, begin, end, recomputes)));
  });
  return {.partition = *partition, .recompute = std::vector<bool>(stages.count(), recomputes), .fits = false};
}

}  // namespace

Cut best_cut(std::span<const LayerCost> costs, const Schedule& schedule, const CutRules& rules) {
  const Stages stages(costs, schedule, rules);
  std::optional<Cut> by_stage = cut_by_stage(stages, rules);
  if (stages.devices() == stages.count()) return by_stage ? *by_stage : smallest_cut(stages, rules);
  if (by_stage && !fits_everywhere(stages, *by_stage)) by_stage.reset();
  DeviceSearch search(stages, by_stage ? slowest_device(stages, *by_stage) : kNever);
  const std::optional<Cut> by_device = search.run();
  if (!by_device) {
    if (!by_stage) return smallest_cut(stages, rules);
    by_stage->is_proven = search.is_complete();
    return *by_stage;
  }
  const auto finishes = [&](const Cut& cut) { return makespan(costs, schedule, cut, rules.micro_batch); };
  return by_stage && finishes(*by_stage) <= finishes(*by_device) ? *by_stage : *by_device;
}

Cut smallest_cut(std::span<const LayerCost> costs, const Schedule& schedule, const CutRules& rules) {
  return smallest_cut(Stages(costs, schedule, rules), rules);
}

Partition balance(std::span<const LayerCost> costs, double micro_batch, int stages) {
  std::vector<double> prefix{0.0};
  for (const LayerCost& cost : costs) prefix.push_back(prefix.back() + cost.seconds(micro_batch));
  return *least_largest_stage(static_cast<int>(costs.size()), stages,
                              [&](int, int begin, int end) { return prefix[end] - prefix[begin]; });
}

std::vector<double> stage_times(std::span<const LayerCost> costs, double micro_batch, const Partition& partition,
                                const std::vector<bool>& recompute) {
  std::vector<double> times;
  std::size_t layer = 0;
  for (std::size_t s = 0; s < partition.layers_per_stage.size(); ++s) {
    double time = 0;
    for (int i = 0; i < partition.layers_per_stage[s]; ++i, ++layer) {
      time += costs[layer].seconds(micro_batch);
      if (!recompute.empty() && recompute[s]) time += costs[layer].forward.at(micro_batch);
    }
    times.push_back(time);
  }
  check(layer == costs.size(), "the partition covers every layer");
  return times;
}

std::vector<std::uint64_t> device_peaks(std::span<const LayerCost> costs, const Schedule& schedule,
                                        const Partition& partition, const std::vector<bool>& recompute,
                                        std::uint64_t samples, bool shares_memory) {
  const CutRules rules{.most_samples = samples, .shares_memory = shares_memory};
  const Stages stages(costs, schedule, rules);
  const auto bytes = stages.bytes(partition, recompute);
  std::vector<std::uint64_t> peaks;
  for (int device = 0; device < stages.devices(); ++device) peaks.push_back(stages.peak(device, bytes));
  return peaks;
}

std::vector<std::uint64_t> live_peaks(std::span<const LayerCost> costs, const Schedule& schedule,
                                      const Partition& partition, const std::vector<bool>& recompute,
                                      std::uint64_t samples) {
  const std::vector<int> owners = pipeline::stage_owners(schedule);
  std::vector<std::uint64_t> peaks;
  for (int s = 0, begin = 0; s < schedule.stages; ++s) {
    const int layers = partition.layers_per_stage[s];
    const StagePlace place{
        .is_first = s == 0, .is_last = s + 1 == schedule.stages, .recomputes = !recompute.empty() && recompute[s]};
    std::vector<StageBytes> alone(schedule.stages);
    alone[s] = live_bytes(costs.subspan(begin, layers), samples, place);
    peaks.push_back(static_cast<std::uint64_t>(pipeline::peak_bytes_of(schedule, owners[s], alone)));
    begin += layers;
  }
  return peaks;
}

}  // namespace sluice::tune
