#include "tune/elastic.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "tune/memory_model.h"
#include "tune/predict.h"

namespace sluice::tune {
namespace {

// What is asked for where a replica has `devices` of them.
PlanRequest reshaped(const PlanRequest& first, int devices, int local_replicas, int frozen_layers) {
  PlanRequest request = first;
  const int processes = first.replicas / first.plan.replicas;
  request.plan.frozen_layers = frozen_layers;
  request.plan.replicas = local_replicas;
  request.devices = devices;
  request.replicas = local_replicas * processes;
  request.partition.reset();
  request.chunks_are_open = false;
  const double same_size = static_cast<double>(first.plan.chunks) * first.replicas / request.replicas;
  request.plan.chunks = std::max(static_cast<int>(std::lround(same_size)), 1);
  return request;
}

bool has_layers_and_samples(const PlanRequest& request) {
  return request.stages() <= request.layers - request.plan.frozen_layers &&
         request.plan.global_batch >= std::int64_t{request.replicas} * request.plan.chunks;
}

// What shapes are tried with.
struct Trial {
  const std::vector<LayerCost>& costs;
  const StepOverheads& overheads;
  bool needs_room = true;
};

// Nothing where the plan does not run or has no room.
std::optional<ElasticPlan> tried(const PlanRequest& request, const Trial& trial) {
  if (!has_layers_and_samples(request)) return std::nullopt;
  try {
    ElasticPlan found{.plan = make_plan(request, trial.costs, trial.overheads)};
    const int processes = request.replicas / request.plan.replicas;
    const auto bytes = estimate_bytes({trial.costs, request.shares_memory, processes}, found.plan);
    if (!bytes) return std::nullopt;
    if (trial.needs_room && request.memory_limit > 0 && *bytes > request.memory_limit) return std::nullopt;
    const double samples = request.mean_micro_batch(1);
    found.predicted_s = predict_step(found.plan, trial.costs, samples, trial.overheads).seconds;
    return found;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// In the shape as it is; with too few layers for that, in the next smaller one.
struct Shapes {
  std::optional<ElasticPlan> stay, best;
};

Shapes tried_shapes(const PlanRequest& request, int frozen_layers, const ElasticRules& rules, const Trial& trial) {
  const int local = request.plan.replicas, places = request.devices * local;
  const int devices_now = rules.current ? rules.current->devices() : request.devices;
  const int replicas_now = rules.current ? rules.current->replicas : local;
  Shapes shapes;
  for (int devices = devices_now; devices >= 1 && !shapes.stay; --devices)
    shapes.stay = tried(reshaped(request, devices, replicas_now, frozen_layers), trial);
  shapes.best = shapes.stay;
  for (int devices = rules.may_shrink ? request.devices : 0; devices >= 1; --devices) {
    const auto other =
        tried(reshaped(request, devices, rules.may_replicate ? places / devices : local, frozen_layers), trial);
    if (other && (!shapes.best || other->predicted_s < shapes.best->predicted_s)) shapes.best = other;
  }
  return shapes;
}

void warn_of_room(const PlanRequest& request, int frozen_layers) {
  log_warning(concat("with ", frozen_layers, " layers frozen, no shape of the pipeline is estimated to fit ",
                     human_bytes(request.memory_limit), " a place; it is tried as it is"));
}

}  // namespace

ElasticPlan elastic_plan(const PlanRequest& request, int frozen_layers, const std::vector<LayerCost>& costs,
                         const StepOverheads& overheads, const ElasticRules& rules) {
  auto [stay, best] = tried_shapes(request, frozen_layers, rules, {costs, overheads});
  if (!best) {
    stay = best = tried_shapes(request, frozen_layers, rules, {costs, overheads, /*needs_room=*/false}).stay;
    if (best) warn_of_room(request, frozen_layers);
  }
  if (!best) {
    throw ConfigError(concat("with ", frozen_layers, " of ", request.layers, " layers frozen, no pipeline of up to ",
                             request.devices, " devices runs by the schedule ", request.plan.schedule,
                             "; freeze fewer, or choose the schedule 1f1b"));
  }
  if (!stay) stay = best;
  const bool is_won_back = (stay->predicted_s - best->predicted_s) * rules.steps > rules.change_s;
  ElasticPlan chosen = is_won_back ? *best : *stay;
  chosen.staying_s = stay->predicted_s;
  return chosen;
}

}  // namespace sluice::tune
