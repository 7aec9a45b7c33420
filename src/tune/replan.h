// replan: shares and cut for replicas whose devices are slower or faster than planned, by measured times. A device's
// slowness is its measured time / the predicted time of its layers, and holds for any layers that it gets. Pure, except
// for the clock of the search. Times in seconds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "tune/plan_search.h"

namespace sluice::tune {

struct MeasuredStep {
  Plan plan;
  std::vector<std::vector<double>> computing;  // [replica of all processes][device], above 0
  std::int64_t units = 1;                      // samples, micro-batches or groups of them; shares divide them
};

struct ReplanRules {
  bool shares_change = true;
  std::vector<LayerCost> layers;   // of the whole model; empty: the cut stays
  std::optional<Plan> preferred;   // its cut is chosen unless another is faster by kClearly
  std::uint64_t memory_limit = 0;  // bytes per slot; 0: no limit
  bool shares_memory = true;       // as for device_bytes() (memory.h)
  std::vector<Recompute> recompute = {Recompute::kNone};
};

// Predicted seconds are those of the slowest replica's step, without all-reduce and update. Without layer costs they
// are the computing time of its slowest device.
struct Replanned {
  Plan plan;
  double before_s = 0;  // if the plan stays
  double after_s = 0;   // with `plan`
};

class Replanner {
 public:
  static constexpr double kClearly = 0.02;
  static constexpr double kSameSlowness = 0.1;  // smaller changes of a device's slowness start no new search
  static constexpr double kSearchSeconds = 0.1;

  explicit Replanner(ReplanRules rules) : rules_(std::move(rules)) {}

  // The best plan with the present cut, and with any cut; with several replicas the best of one cut for each and one
  // for all. A replica without a share counts as fast as it last was. clock: seconds since any start.
  struct Best {
    Replanned with_this_cut, with_any_cut;
  };
  [[nodiscard]] Best plans_for(const MeasuredStep& measured, const std::function<double()>& clock);
  // One unit for each replica that has none. Requires: shares change; plans_for() of the same step.
  [[nodiscard]] Replanned trial_plan(const MeasuredStep& measured) const;

  // [replica][device]: slowness, or without layer costs the time of a unit, in proportion to the quickest device.
  [[nodiscard]] std::vector<std::vector<double>> slowness() const;

  // [device]: the predicted computing time with `then` / with `now`; 1 without layer costs.
  [[nodiscard]] std::vector<double> work_ratios(const Plan& now, const Plan& then, double replica_samples) const;

 private:
  using Slowness = std::vector<std::vector<double>>;  // [replica][device]
  struct Cut {
    Partition partition;
    std::vector<bool> recompute;
  };

  [[nodiscard]] std::vector<double> computing(const Plan& plan, double replica_samples) const;
  void update_slowness(const MeasuredStep& measured);
  [[nodiscard]] std::vector<double> replica_times(const MeasuredStep& measured, const Plan& plan) const;
  [[nodiscard]] Replanned with_shares(const MeasuredStep& measured, const Plan& plan,
                                      const std::vector<double>& times) const;
  void update_cuts(const MeasuredStep& measured, const std::function<double()>& clock);
  void add_best_cut(const MeasuredStep& measured, const std::vector<double>& slowness,
                    const std::function<double()>& clock);

  ReplanRules rules_;
  Slowness slowness_;  // without layer costs: seconds of one unit
  Slowness searched_;  // for which cuts_ were found
  std::vector<Cut> cuts_;
};

}  // namespace sluice::tune
