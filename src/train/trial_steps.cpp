#include "train/trial_steps.h"

#include <algorithm>

namespace sluice::train {

std::vector<TrialStep> run_trial_steps(const Setup& setup, Composition& composition, TrainStep& step, int warm_up,
                                       std::int64_t steps) {
  data::Loader loader(*setup.train_set, train_loader_options(setup));
  const LrSchedule lr = lr_schedule(setup);
  std::vector<TrialStep> trial;
  for (std::int64_t number = 0; number < warm_up + steps; ++number) {
    composition.executor->recorder().clear();
    const Nanoseconds begin = now_ns();
    const auto batch = loader.next();
    const Nanoseconds loaded = now_ns();
    // A run may be shorter than its trial.
    const StepStats stats = step.run(as_step_batch(*batch), number, lr.at(std::min(number, setup.total_steps - 1)));
    if (number >= warm_up) trial.push_back({.load = loaded - begin, .duration = now_ns() - begin, .stats = stats});
  }
  return trial;
}

}  // namespace sluice::train
