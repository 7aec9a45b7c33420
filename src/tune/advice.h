// advice: what a run's breakdown says should be changed: one sentence with a number for each thing worth changing.
// Pure rules on plain numbers. Not here: measuring (profiler/breakdown.h), what a step takes (predict.h), choosing a
// plan (make_plan.h): a rule looks at one change at a time, from the plan that ran. If costs are known, both plans are
// predicted by AdviceInput::predict, which is what `sluice simulate` predicts them by; the rules scale nothing.
// Threads: pure functions. Errors: none; what is not known is 0 or empty, and its rules keep silent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/layer_cost.h"
#include "core/link_cost.h"
#include "core/plan.h"

namespace sluice::tune {

// One (replica, device): seconds per step, means over the run. The parts are disjoint.
struct DeviceSeconds {
  int replica = 0;
  int device = 0;
  double forward = 0;
  double backward = 0;
  double load = 0;       // waiting for the batch
  double allreduce = 0;  // that nothing hides, without skew
  double skew = 0;       // waiting for the latest replica or process
  double fill = 0;       // the bubble until the device's first backward,
  double drain = 0;      // and after its last forward
  double other = 0;      // idle for none of these causes
};

// The process on which the others waited, where processes compared their times.
struct LateRank {
  int rank = 0;
  double late = 0;  // seconds per step that the others waited for it
};

// Seconds of a step of a plan whose gradients are summed in buckets of so many MiB. Nothing if the plan does not run.
using PredictStep = std::function<std::optional<double>(const Plan& plan, double bucket_mb)>;

struct AdviceInput {
  double step = 0;  // seconds
  Plan plan;        // that ran
  std::vector<DeviceSeconds> devices;
  bool chunks_are_measured = false;    // as the fastest of several numbers
  bool partition_is_measured = false;  // cut by the layers' measured costs
  double replica_samples = 0;          // samples a step of one replica
  PredictStep predict;                 // empty: no costs are known
  // What `predict` knows, for the sentences: costs of all layers of the model, and links between stages.
  std::vector<LayerCost> layers;
  std::vector<LinkCost> borders;
  double bucket_mb = 0;  // replicas.bucket_mb of the steps that ran
  std::optional<LateRank> late_rank;
  double sync_bytes = 0;           // that the replicas agree on, per step
  double allreduce = 0;            // seconds per step in all-reduce, hidden or not, without skew
  double network_bytes_per_s = 0;  // over all interfaces
  int data_workers = 0;            // loader threads
};

struct Advice {
  std::string sentence;
  double gain = 0;  // share of the step that it can save, below 1

  bool operator==(const Advice&) const = default;
};

// Advice that gains less than this is not given.
inline constexpr double kWorthwhile = 0.03;

// The most valuable first; none when nothing is worthwhile.
[[nodiscard]] std::vector<Advice> advise(const AdviceInput& input);

}  // namespace sluice::tune
