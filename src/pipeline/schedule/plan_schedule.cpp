#include "pipeline/schedule/plan_schedule.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/schedule_file.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

bool is_from_file(const Plan& plan) { return !plan.schedule_text.empty(); }

bool has_reductions(const Schedule& schedule) {
  return std::ranges::find(schedule.devices.front(), Op::kReduceGradient, &Action::op) !=
         schedule.devices.front().end();
}

Schedule ordered_schedule(const Plan& plan, int chunks) {
  Schedule schedule = prove_training_schedule(plan.schedule_text, "the order of the plan");
  const int devices = static_cast<int>(schedule.devices.size());
  if (schedule.stages != plan.stages() || devices != plan.devices()) {
    throw ConfigError("the schedule file has ", counted(schedule.stages, "stage"), " on ", counted(devices, "device"),
                      ", but ", counted(plan.stages(), "stage"), " on ", counted(plan.devices(), "device"),
                      " are needed; give another schedule file");
  }
  if (schedule.micro_batches != chunks) {
    throw ConfigError("the schedule file has ", counted(schedule.micro_batches, "micro-batch"), ", but ", chunks,
                      " are needed; give another schedule file");
  }
  return has_reductions(schedule) ? schedule : with_reductions(std::move(schedule));
}

}  // namespace

Schedule make_train_schedule(const Plan& plan, int chunks) {
  if (is_from_file(plan)) return ordered_schedule(plan, chunks);
  Schedule schedule = with_reductions(make_schedule(
      plan.schedule, {.stages = plan.devices(), .micro_batches = chunks, .virtual_stages = plan.virtual_stages}));
  validate(schedule);
  return schedule;
}

int least_micro_batches(const Plan& plan) {
  return is_from_file(plan) ? parse_schedule(plan.schedule_text).micro_batches
                            : least_micro_batches(plan.schedule, plan.devices());
}

std::vector<int> stage_owners(const Plan& plan) {
  return stage_owners(make_train_schedule(plan, least_micro_batches(plan)));
}

}  // namespace sluice::pipeline
