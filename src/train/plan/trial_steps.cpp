#include "train/plan/trial_steps.h"

#include <algorithm>

#include "core/concat.h"
#include "core/progress_line.h"
#include "train/trace/recorded_step.h"

namespace sluice::train {

std::vector<TrialStep> run_trial_steps(const Setup& setup, engine::Engine& engine, int warm_up, std::int64_t steps,
                                       StepTrace* trace, TorchSteps* torch) {
  data::Loader loader(*setup.train_set, train_loader_options(setup));
  const optim::LrSchedule lr = lr_schedule(setup);
  std::vector<TrialStep> trial;
  ProgressLine progress;
  for (std::int64_t number = 0; number < warm_up + steps; ++number) {
    if (setup.process.rank == 0) progress.show([&] { return concat("step ", number + 1, " of ", warm_up + steps); });
    engine.recorder().clear();
    const double rate = lr.at(std::min(number, setup.total_steps - 1));
    if (torch != nullptr) torch->before_step(number + 1);
    const RecordedStep done = run_recorded_step(loader, engine, number, rate);
    if (torch != nullptr) torch->after_step(number + 1, /*evaluation_follows=*/false);
    if (trace != nullptr && number >= warm_up) trace->add(done.spans, done.stats, engine.plan());
    if (number >= warm_up) trial.push_back({.breakdown = profiler::break_down(done.spans), .stats = done.stats});
  }
  return trial;
}

}  // namespace sluice::train
