#include "train/setup/step_batch.h"

namespace sluice::train {

pipeline::MicroBatch as_micro_batch(const data::Batch& batch) {
  return {batch.inputs,       batch.targets,        batch.sample_ids, batch.view,
          batch.view_repeats, batch.without_inputs, batch.pixel_scale};
}

engine::StepBatch as_step_batch(const data::Batch& batch) {
  return {as_micro_batch(batch), batch.global_size, batch.epoch * batch.batches + batch.batch};
}

}  // namespace sluice::train
