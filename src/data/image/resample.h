// resample: an image in another size, as Pillow's Image.resize computes it (its Resample.c), byte for byte: a triangle
// (bilinear) or Keys' cubic with a = -0.5 (bicubic), as wide as the reduction asks for (antialias), rows first, then
// columns, both in fixed point with 22 bits behind the point, rounded to bytes in between. torchvision's Resize of a
// Pillow image is that. (Pillow 13 takes columns first where the height shrinks more than the width. What is rounded in
// between is another then: bilinear values differ by 1 at most, bicubic ones by some more beside sharp edges.)
// Only the part of the result that is asked for is computed, from the part of the source that it needs.
// Threads: pure.
#pragma once

#include "data/image/image.h"

namespace sluice::data {

enum class Interpolation { kBilinear, kBicubic };

// `whole` pixels are to become `size`; of these `window` is wanted.
struct Resizing {
  ImageSize whole;
  ImageSize size;
  Box window;
  Interpolation interpolation = Interpolation::kBilinear;
};

// The part of the whole image that the window is computed from.
[[nodiscard]] Box needed_source(const Resizing& resizing);

// `source` holds needed_source() of the whole image. Gives the window.
[[nodiscard]] Image resample(const Image& source, const Resizing& resizing);

}  // namespace sluice::data
