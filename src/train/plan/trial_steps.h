// trial_steps: training steps for timing, without records, evaluation or checkpoints. Discard the weights afterwards.
// Threads: one; every process makes the same number of steps. Errors: those of TrainStep::run().
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
  profiler::StepBreakdown breakdown;  // no slots with profile.level = "off"
  StepStats stats;
};

// Returns the last `steps` of `warm_up` + `steps`. trace, torch: observe these steps; may be null.
[[nodiscard]] std::vector<TrialStep> run_trial_steps(const Setup& setup, engine::Engine& engine, int warm_up,
                                                     std::int64_t steps, StepTrace* trace = nullptr,
                                                     TorchSteps* torch = nullptr);

}  // namespace sluice::train
