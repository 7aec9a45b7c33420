#include "train/run/local_steps.h"

#include "train/setup/stop_signal.h"

namespace sluice::train {

std::optional<RecordedStep> LocalSteps::next_step(engine::Engine& engine, std::int64_t steps_done, double lr,
                                                  const engine::StepRequest& request) {
  return run_recorded_step(*data_, engine, steps_done, lr, request);
}

bool LocalSteps::is_over(engine::Engine& engine, bool is_agreed) const {
  return is_agreed || (engine.step().is_alone() && StopSignal::requested());
}

void LocalSteps::plan_changed(const Plan& before, const Plan& now, data::Position next) {
  // Frozen layers may drop the cached rows of samples.
  const bool is_other_data = now.replicas != before.replicas || now.shares != before.shares ||
                             (reads_features_ && now.frozen_layers != before.frozen_layers);
  if (!is_other_data) return;
  data_.reset();  // ends its threads before the new ones start
  data_ = open_(next);
}

}  // namespace sluice::train
