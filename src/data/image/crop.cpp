#include "data/image/crop.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace sluice::data {
namespace {

constexpr double kNarrowest = 3.0 / 4;  // width / height
constexpr double kWidest = 4.0 / 3;
constexpr int kDraws = 10;

// Rounds like Python: halves to even.
std::int64_t rounded(double value) { return std::llrint(value); }

std::int64_t any_start(std::int64_t whole, std::int64_t part, RngStream& rng) {
  return static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(whole - part + 1)));
}

Box middle_part(const ImageSize& image) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  ImageSize part = image;
  if (width / height < kNarrowest) part.height = rounded(width / kNarrowest);
  if (width / height > kWidest) part.width = rounded(height * kWidest);
  return {(image.height - part.height) / 2, (image.width - part.width) / 2, part.height, part.width};
}

}  // namespace

Box random_crop(const ImageSize& image, double min_area, RngStream& rng) {
  const auto area = static_cast<double>(image.height * image.width);
  for (int draw = 0; draw < kDraws; ++draw) {
    const double part = area * rng.uniform(min_area, 1);
    const double ratio = std::exp(rng.uniform(std::log(kNarrowest), std::log(kWidest)));
    const std::int64_t width = rounded(std::sqrt(part * ratio)), height = rounded(std::sqrt(part / ratio));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const std::int64_t top = any_start(image.height, height, rng);
    return {top, any_start(image.width, width, rng), height, width};
  }
  return middle_part(image);
}

std::optional<Box> random_part_to_erase(const ImageSize& image, RngStream& rng) {
  const auto area = static_cast<double>(image.height * image.width);
  for (int draw = 0; draw < kDraws; ++draw) {
    const double part = area * rng.uniform(0.02, 0.33);
    const double ratio = std::exp(rng.uniform(std::log(0.3), std::log(3.3)));
    const std::int64_t height = rounded(std::sqrt(part * ratio)), width = rounded(std::sqrt(part / ratio));
    if (height >= image.height || width >= image.width) continue;
    const std::int64_t top = any_start(image.height, height, rng);
    return Box{top, any_start(image.width, width, rng), height, width};
  }
  return std::nullopt;
}

ImageSize with_shorter_side(const ImageSize& image, std::int64_t side) {
  const auto longer = [&](std::int64_t long_side, std::int64_t short_side) { return side * long_side / short_side; };
  if (image.width <= image.height) return {longer(image.height, image.width), side};
  return {side, longer(image.width, image.height)};
}

Box middle_of(const ImageSize& image, std::int64_t side) {
  check(image.height >= side && image.width >= side, "an image at least as large as its middle part");
  const auto start = [&](std::int64_t whole) { return rounded(static_cast<double>(whole - side) / 2); };
  return {start(image.height), start(image.width), side, side};
}

}  // namespace sluice::data
