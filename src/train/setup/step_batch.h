// step_batch: converts a batch of the loader for the engine.
#pragma once

#include "data/loader.h"
#include "engine/train_step.h"
#include "pipeline/micro_batch.h"

namespace sluice::train {

[[nodiscard]] inline pipeline::MicroBatch as_micro_batch(const data::Batch& batch) {
  return {batch.inputs,       batch.targets,        batch.sample_ids, batch.view,
          batch.view_repeats, batch.without_inputs, batch.pixel_scale};
}

[[nodiscard]] inline engine::StepBatch as_step_batch(const data::Batch& batch) {
  return {as_micro_batch(batch), batch.global_size, batch.epoch * batch.batches + batch.batch};
}

}  // namespace sluice::train
