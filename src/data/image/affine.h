// affine: moves, shears or rotates an image without changing its size, black outside. Byte-equal to Pillow's
// Image.transform and Image.rotate with nearest pixels. Threads: pure.
#pragma once

#include "data/image/image.h"

namespace sluice::data {

// Shifts a row right, or a column down, by `slope` times its number; the top left corner stays.
[[nodiscard]] Image sheared_in_x(const Image& image, double slope);
[[nodiscard]] Image sheared_in_y(const Image& image, double slope);
[[nodiscard]] Image moved(const Image& image, std::int64_t right, std::int64_t down);
// Counter-clockwise about the middle.
[[nodiscard]] Image rotated(const Image& image, double degrees);

}  // namespace sluice::data
