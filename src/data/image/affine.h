// affine: an image moved, sheared or turned, its size kept, nearest pixels taken, black where there are none: byte for
// byte as Pillow's Image.transform and Image.rotate, which torchvision's affine and rotate call.
// Threads: pure.
#pragma once

#include "data/image/image.h"

namespace sluice::data {

// To the right by `slope` times the row, or down by `slope` times the column, seen from the top left corner.
[[nodiscard]] Image sheared_in_x(const Image& image, double slope);
[[nodiscard]] Image sheared_in_y(const Image& image, double slope);
[[nodiscard]] Image moved(const Image& image, std::int64_t right, std::int64_t down);
// Counter-clockwise about the middle.
[[nodiscard]] Image rotated(const Image& image, double degrees);

}  // namespace sluice::data
