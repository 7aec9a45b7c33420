// composition: from a set-up and a plan to what trains it (engine/compose.h, engine/train_step.h).
// Errors: those of compose().
#pragma once

#include "comm/processes.h"
#include "core/plan.h"
#include "engine/compose.h"
#include "engine/train_step.h"
#include "train/setup.h"

namespace sluice::train {

// `processes` connects to the others; null where there are none.
[[nodiscard]] engine::Composition make_composition(const Setup& setup, const Plan& plan,
                                                   comm::Processes* processes = nullptr);
// Requires: `setup` outlives the step.
[[nodiscard]] engine::TrainStepOptions step_options(const Setup& setup);

}  // namespace sluice::train
