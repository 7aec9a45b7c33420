// decode: the pixels of a picture file: JPEG (libjpeg-turbo), PNG (libpng), WebP (libwebp). What the bytes are is told
// from themselves, not from a name. The pixels are those of Pillow's Image.open(file).convert("RGB"), which is how
// torchvision's ImageFolder reads: grey is spread over three channels, transparency is left out, CMYK is taken for
// Adobe's (inverted), 16 bits are cut to the upper 8 (also grey ones, which Pillow makes white above 255), EXIF
// orientation is not applied; of an animation the first image. Only the part that is asked for is decoded, as far as
// the format allows. Threads: pure. Errors: DataError, what is wrong without the file's name, for files that are
// damaged or cut off, for other formats, and for pictures of more than kMostPixels (decompression bombs).
#pragma once

#include <cstdint>
#include <span>

#include "data/image/image.h"

namespace sluice::data {

inline constexpr std::int64_t kMostPixels = 100'000'000;

using EncodedBytes = std::span<const std::uint8_t>;

// From the header alone.
[[nodiscard]] ImageSize read_image_size(EncodedBytes file);

// RGB, [box.height, box.width, 3]. The box lies inside the image.
[[nodiscard]] Image decode_image(EncodedBytes file, const Box& box);

}  // namespace sluice::data
