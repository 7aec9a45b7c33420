// freeze_planner: from a number of frozen units to the plan that a run goes on with: which layers these are, how the
// others are cut, and in which shape, by measured costs (tune/elastic.h).
// Not here: how many units freeze when (freeze/policy.h), before the first step (freeze_plans.h) or during the run
// (freeze_watch.h). Threads: one. Errors: ConfigError where no plan works; those of measuring layers.
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
// [k]: layers that are frozen when k units are (models/freeze_points.h).
[[nodiscard]] std::vector<int> freeze_points_of(const Setup& setup);

// From a step on, with which `epoch` begins, until epoch `end`.
struct FrozenTime {
  std::int64_t after = 0;  // steps
  std::int64_t epoch = 0;
  std::int64_t end = 0;
};

// Of the samples of that time, how many run through the frozen layers: of the others what they make is kept
// (freeze.cache), as far as there is room. kept_since: the epoch that began with an empty cache; row_bytes: a sample.
[[nodiscard]] double running_share(const Setup& setup, const FrozenTime& time, std::int64_t kept_since,
                                   std::uint64_t row_bytes);

class FreezePlanner {
 public:
  // `setup` must outlive it.
  // first_epoch: of this start of the run, in which freeze.cache is empty.
  explicit FreezePlanner(const Setup& setup, std::int64_t first_epoch = 0)
      : setup_(setup), points_(freeze_points_of(setup)), first_epoch_(first_epoch) {}

  [[nodiscard]] int units() const { return static_cast<int>(points_.size()) - 1; }
  [[nodiscard]] const std::vector<int>& points() const { return points_; }
  // Measures what plans are made by; the first change() does, too.
  void prepare();
  // A change that was decided before comes first: the run is in the shape of `plan`, of so long a step, if that is
  // known.
  void follow(const Plan& plan, std::optional<double> predicted_s);
  // As many units freeze with this epoch: what is kept begins anew where some thaw.
  void note(std::int64_t epoch, int units_before, int units);
  // Nothing while nothing is frozen.
  [[nodiscard]] std::optional<std::int64_t> kept_since() const { return kept_since_; }
  // units_before: those frozen until then.
  [[nodiscard]] PlanChange change(const FrozenTime& time, int units_before, const freeze::Decision& decision);

 private:
  const Setup& setup_;
  std::vector<int> points_;
  std::vector<LayerCost> costs_;
  tune::ElasticRules rules_;
  std::optional<double> last_predicted_s_;  // a step under the plan before
  std::int64_t first_epoch_;
  std::optional<std::int64_t> kept_since_;  // the epoch that began with an empty cache and frozen layers
};

}  // namespace sluice::train
