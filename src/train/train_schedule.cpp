#include "train/train_schedule.h"

#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/validate.h"

namespace sluice::train {

pipeline::Schedule make_train_schedule(const Plan& plan, int chunks) {
  pipeline::Schedule schedule = pipeline::with_reductions(pipeline::make_schedule(
      plan.schedule, {.stages = plan.devices(), .micro_batches = chunks, .virtual_stages = plan.virtual_stages}));
  pipeline::validate(schedule);
  return schedule;
}

std::vector<int> stage_owners(const Plan& plan) {
  return pipeline::stage_owners(
      make_train_schedule(plan, pipeline::least_micro_batches(plan.schedule, plan.devices())));
}

}  // namespace sluice::train
