// trial_steps: training steps for the sake of their times: as the loop runs them, on batches of the loader, but without
// records, evaluation or checkpoints. The weights they change are of no further use.
// Threads: one; every process of a run takes the same number of steps. Errors: those of TrainStep::run().
#pragma once

#include <vector>

#include "core/step_stats.h"
#include "engine/engine.h"
#include "profiler/breakdown.h"
#include "train/setup/setup.h"
#include "train/trace/step_trace.h"
#include "train/trace/torch_steps.h"

namespace sluice::train {

struct TrialStep {
  profiler::StepBreakdown breakdown;  // without slots with profile.level = "off"
  StepStats stats;
};

// The last `steps` of `warm_up` + `steps`. trace, torch: of these; null: none.
[[nodiscard]] std::vector<TrialStep> run_trial_steps(const Setup& setup, engine::Engine& engine, int warm_up,
                                                     std::int64_t steps, StepTrace* trace = nullptr,
                                                     TorchSteps* torch = nullptr);

}  // namespace sluice::train
