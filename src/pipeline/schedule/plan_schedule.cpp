#include "pipeline/schedule/plan_schedule.h"

#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {

Schedule make_train_schedule(const Plan& plan, int chunks) {
  Schedule schedule = with_reductions(make_schedule(
      plan.schedule, {.stages = plan.devices(), .micro_batches = chunks, .virtual_stages = plan.virtual_stages}));
  validate(schedule);
  return schedule;
}

std::vector<int> stage_owners(const Plan& plan) {
  return stage_owners(make_train_schedule(plan, least_micro_batches(plan.schedule, plan.devices())));
}

}  // namespace sluice::pipeline
