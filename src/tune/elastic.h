// elastic: the shape that a pipeline takes once its first layers are frozen: on how many devices it goes on, and how
// many replicas the devices make then. A shape is taken for its predicted step (predict.h), and only where it wins back
// what the change to it costs. A micro-batch stays as large as it was: so do its memory and what batch-norm sees.
// Not here: how many layers are frozen (freeze/policy.h), making the change (engine/engine.h). Pure. Times in seconds.
#pragma once

#include <optional>
#include <string>

#include "core/layer_cost.h"
#include "tune/make_plan.h"

namespace sluice::tune {

struct ElasticRules {
  bool may_shrink = true;       // onto fewer devices a replica
  bool may_replicate = true;    // devices that are free become replicas
  std::optional<Plan> current;  // in whose shape the run is; nothing: in that of the request
  double change_s = 0;          // that a change of shape takes
  double steps = 1;             // in which it has to win that back
};

struct ElasticPlan {
  Plan plan;
  double predicted_s = 0;    // a step
  double staying_s = 0;      // a step in the shape as it is now, as far as there are layers for it
  std::string why_it_stays;  // what the best other shape would bring; empty: the shape changes, or there is no choice
};

// request: of the run's first plan, with costs of all layers. frozen_layers: of the plan that is wanted; fewer than
// there are. The cut is anew, whatever the request says of it. Where no shape is estimated to have room, one is taken
// all the same, with a warning. Errors: ConfigError where no shape runs.
[[nodiscard]] ElasticPlan elastic_plan(const PlanRequest& request, int frozen_layers,
                                       const std::vector<LayerCost>& costs, const StepOverheads& overheads,
                                       const ElasticRules& rules);

}  // namespace sluice::tune
