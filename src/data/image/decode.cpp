#include "data/image/decode.h"

#include <algorithm>
#include <string_view>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "data/image/formats.h"

namespace sluice::data {
namespace {

enum class Format { kJpeg, kPng, kWebp };

bool holds(EncodedBytes file, std::size_t offset, std::string_view magic) {
  if (file.size() < offset + magic.size()) return false;
  return std::equal(magic.begin(), magic.end(), file.begin() + static_cast<std::ptrdiff_t>(offset),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

Format format_of(EncodedBytes file) {
  if (holds(file, 0, "\xff\xd8\xff")) return Format::kJpeg;
  if (holds(file, 0, "\x89PNG\r\n\x1a\n")) return Format::kPng;
  if (holds(file, 0, "RIFF") && holds(file, 8, "WEBP")) return Format::kWebp;
  if (file.empty()) throw DataError("the file is empty");
  throw DataError("it is no JPEG, PNG or WebP");
}

}  // namespace

void check_image_size(const ImageSize& size) {
  if (size.height < 1 || size.width < 1) throw DataError("its header names no pixels");
  if (size.height > kMostPixels / size.width) {
    throw DataError(
        concat("its header names ", size.width, "x", size.height, " pixels, at most ", kMostPixels, " are read"));
  }
}

ImageSize read_image_size(EncodedBytes file) {
  switch (format_of(file)) {
    case Format::kJpeg: return read_jpeg_size(file);
    case Format::kPng: return read_png_size(file);
    case Format::kWebp: return read_webp_size(file);
  }
  check(false, "an image format with a decoder");
  return {};
}

Image decode_image(EncodedBytes file, const Box& box) {
  switch (format_of(file)) {
    case Format::kJpeg: return decode_jpeg(file, box);
    case Format::kPng: return decode_png(file, box);
    case Format::kWebp: return decode_webp(file, box);
  }
  check(false, "an image format with a decoder");
  return {};
}

}  // namespace sluice::data
