// crop: which part of an image is taken, and to which size it is brought, as torchvision does it: RandomResizedCrop in
// training, Resize of the shorter side and CenterCrop in evaluation.
// Threads: pure; an RngStream belongs to its caller.
#pragma once

#include <optional>

#include "core/rng.h"
#include "data/image/image.h"

namespace sluice::data {

// A part of min_area .. 1 of the image's area and of 3/4 to 4/3 its width to its height, anywhere inside; where none of
// ten draws fits, the largest such part in the middle. (torchvision's RandomResizedCrop.get_params)
[[nodiscard]] Box random_crop(const ImageSize& image, double min_area, RngStream& rng);

// A part of 2 to 33 % of the area, 0.3 to 3.3 times as high as wide, smaller than the image on both sides; empty where
// none of ten draws fits. (torchvision's RandomErasing.get_params)
[[nodiscard]] std::optional<Box> random_part_to_erase(const ImageSize& image, RngStream& rng);

// The shorter side becomes `side`, the longer one keeps the proportion, rounded down. (torchvision's Resize)
[[nodiscard]] ImageSize with_shorter_side(const ImageSize& image, std::int64_t side);

// side x side pixels in the middle. Requires: no side of the image is shorter. (torchvision's CenterCrop)
[[nodiscard]] Box middle_of(const ImageSize& image, std::int64_t side);

}  // namespace sluice::data
