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
  std::int64_t units = 1;                      // of a step: what shares count
};

struct ReplanRules {
  bool shares_change = true;
  // Empty: the cut stays.
  std::vector<LayerCost> layers;
  std::optional<Plan> first;  // keeps its cut unless another is faster by kClearly
  std::uint64_t memory_limit = 0;
  bool shares_memory = true;
  std::vector<Recompute> recompute = {Recompute::kNone};
};

struct Replanned {
  Plan plan;
  // Of the slowest replica, without all-reduce and update.
  double before_s = 0, after_s = 0;
};

class Replanner {
 public:
  static constexpr double kClearly = 0.02;
  static constexpr double kSameSlowness = 0.1;  // smaller changes of a device's slowness start no new search
  static constexpr double kSearchSeconds = 0.1;

  explicit Replanner(ReplanRules rules) : rules_(std::move(rules)) {}

  // A replica without a share counts as fast as it last was. clock: seconds since any start.
  [[nodiscard]] Replanned plan_for(const MeasuredStep& measured, const std::function<double()>& clock);
  // One unit for each replica that has none. Requires: shares change.
  [[nodiscard]] Replanned trial_plan(const MeasuredStep& measured);

  // [device]: the predicted computing time of `then` / that of `now`, on equal devices. Empty without costs.
  [[nodiscard]] std::vector<double> work_ratios(const Plan& now, const Plan& then, double replica_samples) const;

 private:
  using Slowness = std::vector<std::vector<double>>;  // [replica][device]
  struct Cut {
    Partition partition;
    std::vector<bool> recompute;
  };

  [[nodiscard]] std::vector<double> work(const Plan& plan, double replica_samples) const;
  void take(const MeasuredStep& measured);
  [[nodiscard]] std::vector<double> replica_times(const MeasuredStep& measured, const Plan& plan) const;
  [[nodiscard]] Replanned with_shares(const MeasuredStep& measured, const Plan& plan,
                                      const std::vector<double>& times) const;
  void search(const MeasuredStep& measured, const std::function<double()>& clock);
  void add_best_cut(const MeasuredStep& measured, std::vector<double> slowness, const std::function<double()>& clock);

  ReplanRules rules_;
  Slowness slowness_;  // without costs: seconds of one unit
  Slowness searched_;  // of `cuts_`
  std::vector<Cut> cuts_;
};

}  // namespace sluice::tune
