// plan_family: scores the cuts of plans that differ in their cut only. Internal to src/tune. It caches answers and
// counts predictions, so each thread needs its own instance.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/plan.h"
#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"
#include "tune/cut_bound.h"
#include "tune/cut_memory.h"
#include "tune/partition.h"
#include "tune/plan_search.h"
#include "tune/predict.h"

namespace sluice::tune {

struct FamilyShape {
  Plan plan;  // with one layer per stage
  Recompute recompute = Recompute::kNone;
  std::shared_ptr<const SlotCosts> costs;
  std::shared_ptr<const pipeline::Schedule> schedule;
};

struct ScoredCut {
  Partition partition;
  std::vector<bool> recompute;
  double seconds = kNever;

  [[nodiscard]] bool is_found() const { return seconds < kNever; }
};

// Relative difference that rounding can cause; smaller differences are ignored.
inline constexpr double kSameTime = 1e-9;

[[nodiscard]] CutBound bound_of(const FamilyShape& shape, const SearchSpace& space);

class PlanFamily {
 public:
  // Requires: both arguments outlive this object.
  PlanFamily(const FamilyShape& shape, const SearchSpace& space);
  PlanFamily(const PlanFamily&) = delete;
  PlanFamily& operator=(const PlanFamily&) = delete;

  [[nodiscard]] int layers() const { return static_cast<int>(layers_.size()); }
  [[nodiscard]] int stages() const { return shape_.schedule->stages; }
  [[nodiscard]] bool is_flat() const { return stages() == shape_.plan.devices(); }
  [[nodiscard]] bool has_limit() const { return rules_.memory_limit > 0; }
  [[nodiscard]] double count_cuts() const;
  [[nodiscard]] bool looks_at_all_choices() const;
  [[nodiscard]] const CutBound& bound() const { return bound_; }
  [[nodiscard]] CutMemory& memory() { return memory_; }

  // The fastest choice of recomputation that fits in memory. Not found if none fits or all take longer than `worst`.
  [[nodiscard]] ScoredCut score(const Partition& partition, double worst);
  [[nodiscard]] StepPrediction predict(const ScoredCut& cut) const;
  // Starting points of a search: the most even cut by work, and tune::best_cut().
  [[nodiscard]] Partition even_cut() const;
  [[nodiscard]] Partition best_by_stage() const { return best_cut(layers_, *shape_.schedule, rules_).partition; }
  // The cut with the least memory need, or the pinned cut.
  struct Need {
    Cut cut;
    std::uint64_t bytes = 0;
    std::string sentence;  // "stage 0 needs 31.2 GiB of 24.0 GiB"
  };
  [[nodiscard]] Need least_need();

  std::int64_t tried = 0;

 private:
  [[nodiscard]] double seconds_alone(const StepCosts& costs) const;

  const FamilyShape& shape_;
  std::span<const LayerCost> layers_;
  double micro_batch_;
  CutRules rules_;
  double frozen_s_;
  pipeline::Simulator simulator_;
  CutBound bound_;
  CutMemory memory_;
  bool slows_ = false;  // devices slow each other down and none speeds up
};

}  // namespace sluice::tune
