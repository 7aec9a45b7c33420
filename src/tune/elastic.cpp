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

struct Trial {
  const std::vector<LayerCost>& costs;
  const StepOverheads& overheads;
  bool needs_room = true;
};

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

// stay: the present shape, or the next smaller one if too few layers are left. other: the best other shape.
struct Shapes {
  std::optional<ElasticPlan> stay, other;

  [[nodiscard]] std::optional<ElasticPlan> best() const {
    return other && (!stay || other->predicted_s < stay->predicted_s) ? other : stay;
  }
};

bool are_of_one_shape(const Plan& one, const Plan& other) {
  return one.devices() == other.devices() && one.replicas == other.replicas;
}

std::string in_words(const ElasticPlan& shape) {
  return concat(counted(shape.plan.stages(), "stage"), " x ", counted(shape.plan.replicas, "replica"));
}

std::string why_it_stays(const Shapes& shapes, const ElasticRules& rules) {
  const auto step_of = [](const ElasticPlan& shape) { return concat(fixed(shape.predicted_s * 1e3, 2), " ms a step"); };
  const std::string now = concat("keeping ", in_words(*shapes.stay), " (predicted ", step_of(*shapes.stay), "). ");
  if (!shapes.other) return concat(now, "No other shape has room and enough layers and samples.");
  const double gain_s = (shapes.stay->predicted_s - shapes.other->predicted_s) * rules.steps;
  const std::string other =
      concat(now, "Best alternative: ", in_words(*shapes.other), " (", step_of(*shapes.other), ")");
  if (gain_s <= 0) return concat(other, ".");
  return concat(other, "; changing takes ", fixed(rules.change_s, 3), " s and would save ", fixed(gain_s, 3),
                " s in the ", counted(std::llround(rules.steps), "step"), " of an epoch.");
}

int devices_of(const PlanRequest& request, const ElasticRules& rules) {
  return rules.current ? rules.current->devices() : request.devices;
}

Shapes tried_shapes(const PlanRequest& request, int frozen_layers, const ElasticRules& rules, const Trial& trial) {
  const int local = request.plan.replicas, slots = request.devices * local;
  const int devices_now = devices_of(request, rules);
  const int replicas_now = rules.current ? rules.current->replicas : local;
  Shapes shapes;
  for (int devices = devices_now; devices >= 1 && !shapes.stay; --devices)
    shapes.stay = tried(reshaped(request, devices, replicas_now, frozen_layers), trial);
  for (int devices = rules.may_shrink ? request.devices : 0; devices >= 1; --devices) {
    const auto other =
        tried(reshaped(request, devices, rules.may_replicate ? slots / devices : local, frozen_layers), trial);
    if (!other || (shapes.stay && are_of_one_shape(other->plan, shapes.stay->plan))) continue;
    if (!shapes.other || other->predicted_s < shapes.other->predicted_s) shapes.other = other;
  }
  return shapes;
}

void warn_of_room(const PlanRequest& request, int frozen_layers) {
  log_warning("with ", frozen_layers, " layers frozen, no pipeline shape is estimated to fit ",
              human_bytes(request.memory_limit), " per slot; keeping the current shape");
}

}  // namespace

ElasticPlan elastic_plan(const PlanRequest& request, int frozen_layers, const std::vector<LayerCost>& costs,
                         const StepOverheads& overheads, const ElasticRules& rules) {
  Shapes shapes = tried_shapes(request, frozen_layers, rules, {costs, overheads});
  if (!shapes.best()) {
    shapes.stay = tried_shapes(request, frozen_layers, rules, {costs, overheads, /*needs_room=*/false}).stay;
    if (shapes.stay) warn_of_room(request, frozen_layers);
  }
  const std::optional<ElasticPlan> best = shapes.best();
  if (!best) {
    throw ConfigError("with ", frozen_layers, " of ", request.layers, " layers frozen, no pipeline of up to ",
                      request.devices, " devices can run the schedule ", request.plan.schedule,
                      "; freeze fewer layers or choose the schedule 1f1b");
  }
  const bool has_choice = rules.may_shrink && shapes.stay &&
                          shapes.stay->plan.devices() == devices_of(request, rules) && request.devices > 1;
  if (!shapes.stay) shapes.stay = best;
  const bool is_won_back = (shapes.stay->predicted_s - best->predicted_s) * rules.steps > rules.change_s;
  ElasticPlan chosen = is_won_back ? *best : *shapes.stay;
  chosen.staying_s = shapes.stay->predicted_s;
  if (!is_won_back && has_choice) chosen.why_it_stays = why_it_stays(shapes, rules);
  return chosen;
}

}  // namespace sluice::tune
