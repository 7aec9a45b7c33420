#include "data/image/decode.h"

#include <algorithm>
#include <string_view>

#include "core/concat.h"
#include "core/error.h"
#include "data/image/formats.h"

namespace sluice::data {
namespace {

struct Decoder {
  ImageSize (*read_size)(EncodedBytes file);
  Image (*decode)(EncodedBytes file, const Box& box);
};

bool holds(EncodedBytes file, std::size_t offset, std::string_view magic) {
  if (file.size() < offset + magic.size()) return false;
  return std::equal(magic.begin(), magic.end(), file.begin() + static_cast<std::ptrdiff_t>(offset),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

Decoder decoder_for(EncodedBytes file) {
  if (holds(file, 0, "\xff\xd8\xff")) return {read_jpeg_size, decode_jpeg};
  if (holds(file, 0, "\x89PNG\r\n\x1a\n")) return {read_png_size, decode_png};
  if (holds(file, 0, "RIFF") && holds(file, 8, "WEBP")) return {read_webp_size, decode_webp};
  if (file.empty()) throw DataError("the file is empty");
  throw DataError("it is not a JPEG, PNG or WebP file");
}

}  // namespace

void check_image_size(const ImageSize& size) {
  if (size.height < 1 || size.width < 1) throw DataError("its header states no pixels");
  if (size.height > kMostPixels / size.width) {
    throw DataError(
        concat("its header states ", size.width, "x", size.height, " pixels, expected at most ", kMostPixels));
  }
}

ImageSize read_image_size(EncodedBytes file) { return decoder_for(file).read_size(file); }
Image decode_image(EncodedBytes file, const Box& box) { return decoder_for(file).decode(file, box); }

}  // namespace sluice::data
