// saved_average: the average of the weights (train.ema_decay): in memory an optimizer state, in a checkpoint the file
// ema.safetensors, which other programs can load like the model. Pure.
#pragma once

#include "storage/checkpoint.h"

namespace sluice::train {

// Moves the average, if any, from the optimizer's tensors to a model of its own.
void set_average_apart(storage::CheckpointContents& contents);
// The inverse. buffers: of the model, which have no average.
void put_average_back(storage::CheckpointContents& contents, const storage::TensorMap& buffers);

}  // namespace sluice::train
