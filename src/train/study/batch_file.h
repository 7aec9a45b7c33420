// batch_file: the batch of `sluice step --batch`: named tensors in a safetensors file. Errors: DataError.
#pragma once

#include <filesystem>

#include "models/model.h"
#include "task/task.h"
#include "train/setup/step_batch.h"

namespace sluice::train {

[[nodiscard]] pipeline::MicroBatch read_batch(const std::filesystem::path& file, const models::ModelOptions& model,
                                              const task::Task& task);

}  // namespace sluice::train
