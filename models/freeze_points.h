// freeze_points: groups the layers of a model into units that freeze together, in order. Layers before the first block
// (a stem, embeddings) belong to the first unit. The head, after the last block, never freezes.
// The names of the layers determine the blocks:
// - Layers with the same name up to its last number form a block ("layer1.0"; "vit.encoder.layer.3.attention" and
//   "vit.encoder.layer.3.mlp").
// - Layers numbered in one list with the last layer belong to the head ("classifier.0", ..., "classifier.6" of VGG).
// - Unnumbered layers after the last block (a pooler, a norm) belong to the head.
// - Without numbered layers (mlp, toy_cnn), every layer except the last is a block.
// - In VGG every convolution with its batch norm, ReLU and pooling is a block: torchvision does not number its groups.
// nn::Parameter::tied_to covers parameters that the head shares with a frozen layer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/model.h"

namespace sluice::models {

enum class FreezeUnit {
  kBlock,
  kHalfBlock,  // every layer of a block: attention and MLP of a transformer; for other models the same as kBlock
};

// [k]: number of first layers that are frozen when k units are. [0] is 0; the last entry freezes all units and leaves
// the head.
[[nodiscard]] std::vector<int> freeze_points(const ModelOptions& options, FreezeUnit unit);

[[nodiscard]] std::vector<int> freeze_points(std::span<const std::string> layers, FreezeUnit unit);

}  // namespace sluice::models
