// resample: resizes an image, byte-equal to Pillow's Image.resize (Resample.c), which torchvision's Resize of a Pillow
// image calls. The filter is a triangle (bilinear) or Keys' cubic with a = -0.5 (bicubic), widened by the reduction
// (antialias). Rows come first, then columns, in fixed point with 22 fractional bits; values in between are rounded to
// bytes.
// Pillow 13 processes columns first if the height shrinks more than the width. That changes the rounding: bilinear
// values differ by at most 1, bicubic values by more at sharp edges.
// Computes only the requested part of the result, from the part of the source that it needs. Threads: pure.
#pragma once

#include "data/image/image.h"

namespace sluice::data {

enum class Interpolation { kBilinear, kBicubic };

// Resize `whole` to `size` and compute the part `window` of the result.
struct Resizing {
  ImageSize whole;
  ImageSize size;
  Box window;
  Interpolation interpolation = Interpolation::kBilinear;
};

// The part of the whole image that the window depends on.
[[nodiscard]] Box needed_source(const Resizing& resizing);

// `source`: the needed_source() of the whole image. Returns the window.
[[nodiscard]] Image resample(const Image& source, const Resizing& resizing);

}  // namespace sluice::data
