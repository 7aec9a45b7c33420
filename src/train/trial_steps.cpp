#include "train/trial_steps.h"

#include <algorithm>
#include <optional>

namespace sluice::train {

std::vector<TrialStep> run_trial_steps(const Setup& setup, Composition& composition, TrainStep& step, int warm_up,
                                       std::int64_t steps) {
  data::Loader loader(*setup.train_set, train_loader_options(setup));
  const LrSchedule lr = lr_schedule(setup);
  Recorder& recorder = composition.executor->recorder();
  std::vector<TrialStep> trial;
  for (std::int64_t number = 0; number < warm_up + steps; ++number) {
    recorder.clear();
    const Nanoseconds begin = now_ns();
    std::optional<data::Batch> batch;
    {
      const SpanScope span(recorder.process(), Phase::kLoadWait);
      batch = loader.next();
    }
    // A run may be shorter than its trial.
    const StepStats stats = step.run(as_step_batch(*batch), number, lr.at(std::min(number, setup.total_steps - 1)));
    const StepSpans spans = recorder.collect(number, begin, now_ns());
    if (number >= warm_up) trial.push_back({.breakdown = profiler::break_down(spans), .stats = stats});
  }
  return trial;
}

}  // namespace sluice::train
