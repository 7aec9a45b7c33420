// formats: decoders of one picture format each, for decode.cpp. Contract: decode.h.
#pragma once

#include "data/image/decode.h"

namespace sluice::data {

[[nodiscard]] ImageSize read_jpeg_size(EncodedBytes file);
[[nodiscard]] Image decode_jpeg(EncodedBytes file, const Box& box);

[[nodiscard]] ImageSize read_png_size(EncodedBytes file);
[[nodiscard]] Image decode_png(EncodedBytes file, const Box& box);

[[nodiscard]] ImageSize read_webp_size(EncodedBytes file);
[[nodiscard]] Image decode_webp(EncodedBytes file, const Box& box);

void check_image_size(const ImageSize& size);

}  // namespace sluice::data
