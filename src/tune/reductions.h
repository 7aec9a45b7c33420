// reductions: computes when a step's gradients are all-reduced over the replicas. Gradients become complete during a
// stage's last backward, last layer first. Full buckets are reduced while the rest of the backward runs.
// One network carries the bytes of all stages, one bucket after another. A stage's buckets follow one another, each
// with its latency, during which other stages may use the network. Slower compute during an all-reduce is ignored.
// Pure. Units: seconds, bytes.
#pragma once

#include <optional>
#include <vector>

#include "core/link_cost.h"
#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::tune {

// Gradient bytes of a layer, and seconds of the layer within a backward of one micro-batch.
struct LayerGradients {
  double bytes = 0;
  double backward = 0;  // in a B
  double weight = 0;    // in a W
};

// [stage][layer], the last layer of each stage first.
using StageGradients = std::vector<std::vector<LayerGradients>>;

struct ReductionCosts {
  LinkCost all_reduce;      // of one bucket over all replicas
  double bucket_bytes = 0;  // 0: all gradients of a stage form one bucket
  double sent_share = 1;    // share of a gradient's bytes that is sent; 0.5 for bfloat16
};

struct Reduction {
  int stage = 0;
  double bytes = 0;
  double ready = 0;  // since the step's first action, like `end`
  double end = 0;
};

// In the order in which they begin. simulation: of the same schedule. Stages without gradients have no reductions.
// Requires: a validated training schedule.
[[nodiscard]] std::vector<Reduction> reductions_of(const pipeline::Schedule& schedule,
                                                   const pipeline::Simulation& simulation,
                                                   const StageGradients& gradients, const ReductionCosts& costs);

}  // namespace sluice::tune
