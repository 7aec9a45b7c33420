// freeze_planner: the plan for a number of frozen units: their layers, the partition of the others, and the shape by
// measured costs (tune/elastic.h). Threads: one. Errors: ConfigError if no plan works; those of measuring layers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "freeze/policy.h"
#include "train/plan/plan_changes.h"
#include "train/setup/setup.h"
#include "tune/elastic.h"

namespace sluice::train {

[[nodiscard]] freeze::Policy policy_of(const Setup& setup);
// [k]: frozen layers when k units are frozen (models/freeze_points.h).
[[nodiscard]] std::vector<int> freeze_points_of(const Setup& setup);

// Estimates the time of a plan change by making the model and copying its state.
[[nodiscard]] double seconds_of_change(const Setup& setup);

struct FrozenTime {
  std::int64_t after = 0;  // steps done before it
  std::int64_t epoch = 0;
  std::int64_t end = 0;
};

// Fraction of the samples that run through the frozen layers; the others use freeze.cache, as far as it has room.
// kept_since: first epoch of the cache. row_bytes: of a sample.
[[nodiscard]] double running_share(const Setup& setup, const FrozenTime& time, std::int64_t kept_since,
                                   std::uint64_t row_bytes);

class FreezePlanner {
 public:
  // first_epoch: the first of this process's run, in which freeze.cache is empty. Requires: `setup` outlives it.
  explicit FreezePlanner(const Setup& setup, std::int64_t first_epoch = 0)
      : setup_(setup), points_(freeze_points_of(setup)), first_epoch_(first_epoch) {}

  [[nodiscard]] int units() const { return static_cast<int>(points_.size()) - 1; }
  [[nodiscard]] const std::vector<int>& points() const { return points_; }
  void prepare();
  // Continues after a change that was decided earlier: the run has the shape of `plan`, with this step time if known.
  void follow(const Plan& plan, std::optional<double> predicted_s);
  // Records the units that an epoch freezes. The cache restarts if units thaw.
  void note(std::int64_t epoch, int units_before, int units);
  [[nodiscard]] std::optional<std::int64_t> kept_since() const { return kept_since_; }
  [[nodiscard]] PlanChange change(const FrozenTime& time, int units_before, const freeze::Decision& decision);

 private:
  const Setup& setup_;
  std::vector<int> points_;
  std::vector<LayerCost> costs_;
  tune::ElasticRules rules_;
  std::optional<double> last_predicted_s_;  // step time of the previous plan
  std::int64_t first_epoch_;
  std::optional<std::int64_t> kept_since_;  // first epoch with frozen layers and an empty cache
};

}  // namespace sluice::train
