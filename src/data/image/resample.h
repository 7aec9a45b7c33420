// resample: resizes an image, byte-equal to Pillow's Image.resize. The filter is a triangle (bilinear) or Keys' cubic
// with a = -0.5 (bicubic), widened by the reduction (antialias). Rows come first, then columns, in fixed point with 22
// fractional bits, rounded to bytes in between. Pillow 13 begins with columns if the height shrinks more than the
// width; bilinear values then differ by at most 1, bicubic ones by more at edges. Computes only the requested part.
// Threads: pure.
#pragma once

#include "data/image/image.h"

namespace sluice::data {

enum class Interpolation { kBilinear, kBicubic };

struct Resizing {
  ImageSize whole;
  ImageSize size;
  Box window;
  Interpolation interpolation = Interpolation::kBilinear;
};

[[nodiscard]] Box needed_source(const Resizing& resizing);

// `source`: the needed_source() of the whole image. Returns the window.
[[nodiscard]] Image resample(const Image& source, const Resizing& resizing);

}  // namespace sluice::data
