// possible_stages: times and bytes of all stages that layers can be cut into. Internal to src/tune. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "core/layer_cost.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/memory_trace.h"
#include "tune/memory.h"
#include "tune/partition.h"

namespace sluice::tune {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Compares times; sums in another order differ by rounding, which is ignored.
inline bool is_less(double a, double b) { return a < b && b - a > 1e-9 * a; }

// Compares cuts by the largest stage or device, then by evenness of the stages, then by the cost of their borders.
struct CutValue {
  double largest = kNever;
  double squares = kNever;
  double borders = kNever;

  [[nodiscard]] bool is_better_than(const CutValue& other) const {
    for (const auto part : {&CutValue::largest, &CutValue::squares, &CutValue::borders}) {
      if (is_less(this->*part, other.*part)) return true;
      if (is_less(other.*part, this->*part)) return false;
    }
    return false;
  }
};

class PossibleStages {
 public:
  PossibleStages(std::span<const LayerCost> costs, const pipeline::Schedule& schedule, const CutRules& rules)
      : costs_(costs), schedule_(schedule), trace_(schedule), rules_(rules), owners_(pipeline::stage_owners(schedule)) {
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
  [[nodiscard]] std::vector<bool> choices(int stage) const {
    if (!rules_.recompute_of_stage.empty()) return {rules_.recompute_of_stage[stage]};
    if (rules_.recompute == Recompute::kOpen && rules_.memory_limit > 0) return {false, true};
    return {rules_.recompute == Recompute::kLayer};
  }
  [[nodiscard]] double seconds(int begin, int end, bool recomputes) const {
    return seconds_[end] - seconds_[begin] + (recomputes ? forward_seconds_[end] - forward_seconds_[begin] : 0);
  }
  // Cost of sending a stage's output: seconds if links take time for bytes, else bytes; 0 for the last stage.
  [[nodiscard]] double border(int stage, int end) const {
    if (end == layers()) return 0;
    const double bytes = static_cast<double>(costs_[end - 1].output_bytes) * rules_.micro_batch;
    return borders_take_time() ? rules_.overheads.borders[stage].transfer(bytes) : bytes;
  }
  [[nodiscard]] bool borders_take_time() const {
    return std::ranges::any_of(rules_.overheads.borders,
                               [](const LinkCost& border) { return border.bytes_per_s.has_value(); });
  }
  [[nodiscard]] bool allows(int stage, int begin, int end) const {
    if (!rules_.partition) return true;
    const auto& counts = rules_.partition->layers_per_stage;
    return begin == std::accumulate(counts.begin(), counts.begin() + stage, 0) && end - begin == counts[stage];
  }
  [[nodiscard]] pipeline::StageBytes bytes(int stage, int begin, int end, bool recomputes) const {
    const StageRole role{.is_first = stage == 0,
                         .is_last = stage + 1 == count(),
                         .recomputes = recomputes,
                         .one_micro_batch = schedule_.micro_batches == 1,
                         .next_stashes_input = end < layers() && costs_[end].stashes_input,
                         .previous_stashes_gradient = begin > 0 && costs_[begin - 1].stashes_output_gradient};
    return device_bytes(costs_.subspan(begin, end - begin), rules_.most_samples, role, rules_.shares_memory);
  }
  [[nodiscard]] std::vector<pipeline::StageBytes> bytes(const Partition& partition,
                                                        const std::vector<bool>& recompute) const {
    std::vector<pipeline::StageBytes> all;
    for (int s = 0, begin = 0; s < count(); ++s) {
      const int end = begin + partition.layers_per_stage[s];
      all.push_back(bytes(s, begin, end, !recompute.empty() && recompute[s]));
      begin = end;
    }
    return all;
  }
  // stages: [stage]; only those of the device are used.
  [[nodiscard]] std::uint64_t peak(int device, const std::vector<pipeline::StageBytes>& stages) const {
    return static_cast<std::uint64_t>(trace_.peak_bytes(device, stages));
  }
  [[nodiscard]] bool has_limit() const { return rules_.memory_limit > 0; }
  [[nodiscard]] bool fits(int device, const std::vector<pipeline::StageBytes>& stages) const {
    return !has_limit() || peak(device, stages) <= rules_.memory_limit;
  }
  [[nodiscard]] std::uint64_t peak_alone(int stage, const pipeline::StageBytes& bytes) const {
    std::vector<pipeline::StageBytes> stages(count());
    stages[stage] = bytes;
    return peak(owner(stage), stages);
  }

 private:
  std::span<const LayerCost> costs_;
  const pipeline::Schedule& schedule_;
  pipeline::MemoryTrace trace_;
  const CutRules& rules_;
  std::vector<int> owners_;
  std::vector<double> seconds_, forward_seconds_;
};

}  // namespace sluice::tune
