// image: the pixels of a picture as bytes, and parts of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::data {

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

struct Box {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const Box&) const = default;
};

// Row-major, with the channels of a pixel adjacent: [height, width, channels].
struct Image {
  ImageSize size;
  std::int64_t channels = 0;
  std::vector<std::uint8_t> pixels;

  Image() = default;
  Image(ImageSize its_size, std::int64_t its_channels)
      : size(its_size),
        channels(its_channels),
        pixels(static_cast<std::size_t>(its_size.height * its_size.width * its_channels)) {}

  [[nodiscard]] std::int64_t row_bytes() const { return size.width * channels; }
  [[nodiscard]] std::uint8_t* row(std::int64_t y) { return pixels.data() + y * row_bytes(); }
  [[nodiscard]] const std::uint8_t* row(std::int64_t y) const { return pixels.data() + y * row_bytes(); }
};

// Requires: the box lies inside the image.
[[nodiscard]] inline Image part_of(const Image& whole, const Box& box) {
  Image part({box.height, box.width}, whole.channels);
  for (std::int64_t y = 0; y < box.height; ++y)
    std::copy_n(whole.row(box.top + y) + box.left * whole.channels, part.row_bytes(), part.row(y));
  return part;
}

// Convert between adjacent channels and planes [channels, height, width].
inline void write_planes(std::span<const std::uint8_t> pixels, std::int64_t channels, std::span<std::uint8_t> planes) {
  const std::int64_t plane = std::ssize(pixels) / channels;
  for (std::int64_t c = 0; c < channels; ++c) {
    std::uint8_t* to = planes.data() + c * plane;
    const std::uint8_t* from = pixels.data() + c;
    for (std::int64_t i = 0; i < plane; ++i, from += channels) to[i] = *from;
  }
}

[[nodiscard]] inline Image from_planes(std::span<const std::uint8_t> planes, const ImageSize& size,
                                       std::int64_t channels) {
  Image image(size, channels);
  const std::int64_t plane = size.height * size.width;
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::uint8_t* from = planes.data() + c * plane;
    std::uint8_t* to = image.pixels.data() + c;
    for (std::int64_t i = 0; i < plane; ++i, to += channels) *to = from[i];
  }
  return image;
}

}  // namespace sluice::data
