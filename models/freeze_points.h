// freeze_points: the layers that freeze together. A model's units are its blocks, in order; what comes before the first
// (a stem, embeddings) freezes with it. What comes after the last is the head, which never freezes.
// Known from the layers' names: layers that share their name up to its last number are a block
// ("vit.encoder.layer.3.attention" and "vit.encoder.layer.3.mlp"; "layer1.0"). Layers numbered in one list with the
// last layer are head ("classifier.0", ..., "classifier.6" of VGG); so is what stands behind the last block without a
// number (a pooler, a norm). Where nothing is numbered so (mlp, toy_cnn), every layer but the last is a block. In VGG
// every convolution is one, with the batch-norm, ReLU and pooling that are in its layer: torchvision numbers no groups
// of them. Not here: how many freeze when (freeze/policy.h), and parameters that the head shares with a layer that
// freezes (nn::Parameter::tied_to).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/model.h"

namespace sluice::models {

enum class FreezeUnit {
  kBlock,
  kHalfBlock,  // every layer of a block: attention and MLP of a transformer; elsewhere the same as a block
};

// [k]: the number of the model's first layers that are frozen when k units are. [0] is 0, the last one is less than the
// number of layers: all units, without the head.
[[nodiscard]] std::vector<int> freeze_points(const ModelOptions& options, FreezeUnit unit);

// The same of a model with layers of these names.
[[nodiscard]] std::vector<int> freeze_points(std::span<const std::string> layers, FreezeUnit unit);

}  // namespace sluice::models
