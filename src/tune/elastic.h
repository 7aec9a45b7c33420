// elastic: chooses a pipeline's shape after its first layers freeze: the number of devices per replica and of replicas.
// A new shape is chosen by its predicted step (predict.h), and only if the gain outweighs the cost of the change. The
// micro-batch size stays, so its memory and batch-norm's view of it stay too. Pure. Times in seconds.
#pragma once

#include <optional>
#include <string>

#include "core/layer_cost.h"
#include "tune/make_plan.h"

namespace sluice::tune {

struct ElasticRules {
  bool may_shrink = true;
  bool may_replicate = true;
  std::optional<Plan> current;  // plan with the run's present shape; empty: the request's shape
  double change_s = 0;
  double steps = 1;  // number of steps over which a change must pay off
};

struct ElasticPlan {
  Plan plan;
  double predicted_s = 0;
  // Per step in the present shape, or in the next smaller one if too few layers are left.
  double staying_s = 0;
  // Describes the best other shape; empty if the shape changes or there is no choice.
  std::string why_it_stays;
};

// request: the first plan, with costs of all layers. frozen_layers: in the new plan. Always cuts anew. If no shape is
// estimated to fit, chooses one anyway, with a warning. Errors: ConfigError if no shape can run.
[[nodiscard]] ElasticPlan elastic_plan(const PlanRequest& request, int frozen_layers,
                                       const std::vector<LayerCost>& costs, const StepOverheads& overheads,
                                       const ElasticRules& rules);

}  // namespace sluice::tune
