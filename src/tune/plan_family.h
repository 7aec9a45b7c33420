// plan_family: plans that differ in their cut alone, and what one cut of them is worth. Only src/tune includes this.
// Pure but for what it keeps of answers, and its count: a thread has its own.
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
  Plan plan;  // each stage has a layer
  Recompute recompute = Recompute::kNone;
  std::shared_ptr<const SlotCosts> costs;
  std::shared_ptr<const pipeline::Schedule> schedule;
};

// A cut that has room.
struct ScoredCut {
  Partition partition;
  std::vector<bool> recompute;
  double seconds = kNever;  // of a step

  [[nodiscard]] bool is_found() const { return seconds < kNever; }
};

// The same times summed in another order are no other times.
inline constexpr double kSameTime = 1e-9;

[[nodiscard]] CutBound bound_of(const FamilyShape& shape, const SearchSpace& space);

class PlanFamily {
 public:
  // Both outlive this.
  PlanFamily(const FamilyShape& shape, const SearchSpace& space);
  PlanFamily(const PlanFamily&) = delete;
  PlanFamily& operator=(const PlanFamily&) = delete;

  [[nodiscard]] int layers() const { return static_cast<int>(layers_.size()); }
  [[nodiscard]] int stages() const { return shape_.schedule->stages; }
  [[nodiscard]] bool is_flat() const { return stages() == shape_.plan.devices(); }
  [[nodiscard]] bool has_limit() const { return rules_.memory_limit > 0; }
  [[nodiscard]] double count_cuts() const;
  // Whether every choice of recomputation that is allowed is looked at.
  [[nodiscard]] bool looks_at_all_choices() const;
  [[nodiscard]] const CutBound& bound() const { return bound_; }
  [[nodiscard]] CutMemory& memory() { return memory_; }

  // The fastest choice of recomputation that has room. Not found: none has, or all take longer than `worst` seconds.
  [[nodiscard]] ScoredCut score(const Partition& partition, double worst);
  [[nodiscard]] StepPrediction predict(const ScoredCut& cut) const;
  // Where a search can begin: the most even cut by work, and tune::best_cut().
  [[nodiscard]] Partition even_cut() const;
  [[nodiscard]] Partition best_by_stage() const { return best_cut(layers_, *shape_.schedule, rules_).partition; }
  // Of the cut that needs least, or the pinned one.
  struct Need {
    Cut cut;
    std::uint64_t bytes = 0;  // of the device that needs most
    std::string sentence;     // "stage 0 needs 31.2 GiB of 24.0 GiB"
  };
  [[nodiscard]] Need least_need();

  std::int64_t tried = 0;  // predictions

 private:
  [[nodiscard]] double seconds_alone(const StepCosts& costs) const;

  const FamilyShape& shape_;
  std::span<const LayerCost> layers_;  // that are cut
  double micro_batch_;
  CutRules rules_;
  double frozen_s_;
  pipeline::Simulator simulator_;
  CutBound bound_;
  CutMemory memory_;
  bool slows_ = false;  // devices slow each other down, and none speeds up
};

}  // namespace sluice::tune
