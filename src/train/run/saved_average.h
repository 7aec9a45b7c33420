// saved_average: the average of the weights (train.ema_decay) in a checkpoint. In memory it is one of the optimizer's
// states; in a checkpoint it is a file of its own, ema.safetensors, with the names and buffers of the model, so that
// other programs load it as they load the model. Pure functions.
#pragma once

#include "storage/checkpoint.h"

namespace sluice::train {

// From the optimizer's tensors into a model of its own, where there is one.
void set_average_apart(storage::CheckpointContents& contents);
// The other way round. buffers: of the model, which have no average.
void put_average_back(storage::CheckpointContents& contents, const storage::TensorMap& buffers);

}  // namespace sluice::train
