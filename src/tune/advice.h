// advice: rules that turn a run's breakdown into suggestions, one sentence with a number each. A rule considers one
// change of the plan that ran. Pure. Unknown inputs are 0 or empty and disable their rules.
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

// Mean seconds per step of one (replica, device). The parts are disjoint.
struct DeviceSeconds {
  int replica = 0;
  int device = 0;
  double forward = 0;
  double backward = 0;
  double load = 0;       // waiting for the batch
  double allreduce = 0;  // exposed (not overlapped) all-reduce, without skew
  double skew = 0;       // waiting for the latest replica or process
  double fill = 0;       // bubble before the device's first backward
  double drain = 0;      // bubble after the device's last forward
  double other = 0;      // idle for any other reason
};

// The process that the others waited for; known if the processes compared their times.
struct LateRank {
  int rank = 0;
  double late = 0;
};

// Predicts the seconds of a step of a plan with all-reduce buckets of `bucket_mb` MiB; empty if the plan cannot run.
using PredictStep = std::function<std::optional<double>(const Plan& plan, double bucket_mb)>;

struct AdviceCosts {
  PredictStep predict = {};  // empty if no costs are known
  std::vector<LayerCost> layers = {};
  std::vector<LinkCost> borders = {};
  double bucket_mb = 0;
};

struct AdviceInput {
  double step = 0;
  Plan plan;
  std::vector<DeviceSeconds> devices;
  bool chunks_are_measured = false;
  bool partition_is_measured = false;
  double replica_samples = 0;
  AdviceCosts costs;
  std::optional<LateRank> late_rank;
  double sync_bytes = 0;  // bytes per step that the replicas all-reduce
  double allreduce = 0;   // seconds per step in all-reduce, overlapped or not, without skew
  double network_bytes_per_s = 0;
  int data_workers = 0;
};

struct Advice {
  std::string sentence;
  double gain = 0;  // share of the step that it can save, below 1

  bool operator==(const Advice&) const = default;
};

inline constexpr double kWorthwhile = 0.03;

// Sorted by gain, largest first.
[[nodiscard]] std::vector<Advice> advise(const AdviceInput& input);

}  // namespace sluice::tune
