// reductions: when the gradients of a step are added up over the replicas. Gradients become whole during a stage's last
// backward, last layer first; full buckets of them are summed while the rest of the backward runs.
// One network carries the bytes of all stages, one bucket after another. The buckets of a stage follow one another,
// each with its latency, in which the network is free for the other stages. That a sum takes time from the compute
// which it runs beside is not in it. Pure. Units: seconds, bytes.
#pragma once

#include <optional>
#include <vector>

#include "core/link_cost.h"
#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::tune {

// The gradients of a layer, and what the layer's part of a backward of one micro-batch takes.
struct LayerGradients {
  double bytes = 0;
  double backward = 0;  // of a B
  double weight = 0;    // of a W
};

// [stage][layer], the last layer of each stage first.
using StageGradients = std::vector<std::vector<LayerGradients>>;

struct ReductionCosts {
  LinkCost all_reduce;      // of one bucket over all replicas
  double bucket_bytes = 0;  // 0: all gradients of a stage are one bucket
  double sent_share = 1;    // of a gradient's bytes go over the network: half of them as bfloat16
};

// One bucket.
struct Reduction {
  int stage = 0;
  double bytes = 0;
  double ready = 0;  // since the first action of the step, as `end`
  double end = 0;
};

// In the order in which they begin. simulation: of the schedule. A stage without gradients has none. Requires: a
// validated training schedule.
[[nodiscard]] std::vector<Reduction> reductions_of(const pipeline::Schedule& schedule,
                                                   const pipeline::Simulation& simulation,
                                                   const StageGradients& gradients, const ReductionCosts& costs);

}  // namespace sluice::tune
