// decode: decodes JPEG (libjpeg-turbo), PNG (libpng) and WebP (libwebp), as far as possible only the requested part.
// The pixels equal Pillow's Image.open(file).convert("RGB"): grey is copied to three channels, transparency is dropped,
// CMYK is read as Adobe's (inverted), EXIF orientation is not applied, and animations give their first image. 16 bits
// are cut to the upper 8, also for grey, which Pillow makes white above 255.
// Threads: pure. Errors: DataError, without the file's name, for damaged or truncated files, other formats, and
// pictures of more than kMostPixels (decompression bombs).
#pragma once

#include <cstdint>
#include <span>

#include "data/image/image.h"

namespace sluice::data {

inline constexpr std::int64_t kMostPixels = 100'000'000;

using EncodedBytes = std::span<const std::uint8_t>;

[[nodiscard]] ImageSize read_image_size(EncodedBytes file);

// Returns RGB, [box.height, box.width, 3]. Requires: the box lies inside the image.
[[nodiscard]] Image decode_image(EncodedBytes file, const Box& box);

}  // namespace sluice::data
