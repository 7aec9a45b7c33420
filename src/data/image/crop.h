// crop: which part of an image is taken and to which size it is resized, as in torchvision. Threads: pure.
#pragma once

#include <optional>

#include "core/rng.h"
#include "data/image/image.h"

namespace sluice::data {

// A random part of min_area .. 1 of the area with width / height of 3/4 to 4/3. If none of ten draws fits, the largest
// such part in the middle. (torchvision's RandomResizedCrop.get_params)
[[nodiscard]] Box random_crop(const ImageSize& image, double min_area, RngStream& rng);

// A random part of 2 to 33 % of the area with height / width of 0.3 to 3.3, smaller than the image on both sides. Empty
// if none of ten draws fits. (torchvision's RandomErasing.get_params)
[[nodiscard]] std::optional<Box> random_part_to_erase(const ImageSize& image, RngStream& rng);

// The size with `side` as its shorter side; the longer side is rounded down. (torchvision's Resize)
[[nodiscard]] ImageSize with_shorter_side(const ImageSize& image, std::int64_t side);

// The middle side x side pixels. Requires: no side of the image is shorter. (torchvision's CenterCrop)
[[nodiscard]] Box middle_of(const ImageSize& image, std::int64_t side);

}  // namespace sluice::data
