// freeze_points: groups the layers of a model into units that freeze together, in order. Layers before the first block
// belong to the first unit. The head, after the last block, never freezes. Layer names determine the blocks:
// - Equal names up to the last number form a block ("layer1.0", "vit.encoder.layer.3").
// - Layers numbered in one list with the last layer ("classifier.0" of VGG), and unnumbered layers after the last
//   block, belong to the head.
// - Without numbered layers (mlp, toy_cnn), every layer except the last is a block.
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

// [k]: number of leading layers that are frozen with k units. [0] is 0; the last entry leaves only the head.
[[nodiscard]] std::vector<int> freeze_points(const ModelOptions& options, FreezeUnit unit);

[[nodiscard]] std::vector<int> freeze_points(std::span<const std::string> layers, FreezeUnit unit);

}  // namespace sluice::models
