// step_batch: converts a batch of the loader for the engine.
#pragma once

#include "data/loader.h"
#include "engine/train_step.h"
#include "pipeline/micro_batch.h"
#include "task/task.h"

namespace sluice::train {

// Undefined for a field that the batch lacks.
[[nodiscard]] inline nn::Tensors in_order(const data::Fields& fields, const std::vector<std::string>& names) {
  nn::Tensors tensors;
  for (const std::string& name : names) {
    const auto field = fields.find(name);
    tensors.push_back(field == fields.end() ? at::Tensor() : field->second);
  }
  return tensors;
}

// Without the inputs at the end that the batch lacks.
[[nodiscard]] inline nn::Tensors inputs_in_order(const data::Fields& fields, const task::Task& task) {
  nn::Tensors inputs = in_order(fields, task.inputs());
  while (inputs.size() > 1 && !inputs.back().defined()) inputs.pop_back();
  return inputs;
}

[[nodiscard]] inline pipeline::MicroBatch as_micro_batch(const data::Batch& batch, const task::Task& task) {
  return {inputs_in_order(batch.fields, task),
          in_order(batch.fields, task.targets()),
          batch.sample_ids,
          batch.view,
          batch.view_repeats,
          batch.without_inputs,
          batch.pixel_scale};
}

[[nodiscard]] inline engine::StepBatch as_step_batch(const data::Batch& batch, const task::Task& task) {
  return {as_micro_batch(batch, task), batch.global_size, batch.epoch * batch.batches + batch.batch, batch.first};
}

}  // namespace sluice::train
