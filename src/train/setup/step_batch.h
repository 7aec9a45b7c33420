// step_batch: converts a batch of the loader for the engine.
#pragma once

#include "data/loader.h"
#include "engine/train_step.h"
#include "pipeline/micro_batch.h"

namespace sluice::train {

[[nodiscard]] pipeline::MicroBatch as_micro_batch(const data::Batch& batch);
[[nodiscard]] engine::StepBatch as_step_batch(const data::Batch& batch);

}  // namespace sluice::train
