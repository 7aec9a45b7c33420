#include "data/image/affine.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice::data {
namespace {

// Maps a result pixel to its source: x' = xx x + xy y + x0, y' = yx x + yy y + y0.
struct Matrix {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;
};

constexpr int kFixedBits = 16;

std::int64_t fixed(double value) { return static_cast<std::int64_t>(std::floor(value * (1 << kFixedBits) + 0.5)); }

// Computes in fixed point, starting at the middle of the first pixel.
Image transformed(const Image& image, const Matrix& m) {
  Image out(image.size, image.channels);
  const std::int64_t xx = fixed(m.xx), xy = fixed(m.xy), yx = fixed(m.yx), yy = fixed(m.yy);
  std::int64_t row_x = fixed(m.x0 + m.xx * 0.5 + m.xy * 0.5), row_y = fixed(m.y0 + m.yx * 0.5 + m.yy * 0.5);
  for (std::int64_t y = 0; y < image.size.height; ++y, row_x += xy, row_y += yy) {
    std::uint8_t* to = out.row(y);
    std::int64_t x_here = row_x, y_here = row_y;
    for (std::int64_t x = 0; x < image.size.width; ++x, x_here += xx, y_here += yx, to += image.channels) {
      const std::int64_t from_x = x_here >> kFixedBits, from_y = y_here >> kFixedBits;
      if (from_x < 0 || from_x >= image.size.width || from_y < 0 || from_y >= image.size.height) continue;
      std::copy_n(image.row(from_y) + from_x * image.channels, image.channels, to);
    }
  }
  return out;
}

double tangent_of_slope(double slope) {
  constexpr double kDegree = std::numbers::pi / 180;
  return std::tan(std::atan(slope) / kDegree * kDegree);
}

// Rounds to 15 decimals, as Pillow does, so that right angles are exact.
double to_15_decimals(double value) {
  constexpr double kScale = 1e15;
  return std::nearbyint(value * kScale) / kScale;
}

}  // namespace

Image sheared_in_x(const Image& image, double slope) { return transformed(image, {.xy = tangent_of_slope(slope)}); }
Image sheared_in_y(const Image& image, double slope) { return transformed(image, {.yx = tangent_of_slope(slope)}); }

Image moved(const Image& image, std::int64_t right, std::int64_t down) {
  return transformed(image, {.x0 = -static_cast<double>(right), .y0 = -static_cast<double>(down)});
}

Image rotated(const Image& image, double degrees) {
  const double angle = -degrees * std::numbers::pi / 180;
  const double cosine = to_15_decimals(std::cos(angle)), sine = to_15_decimals(std::sin(angle));
  const double x = static_cast<double>(image.size.width) / 2, y = static_cast<double>(image.size.height) / 2;
  return transformed(image, {.xx = cosine,
                             .xy = sine,
                             .x0 = cosine * -x + sine * -y + x,
                             .yx = -sine,
                             .yy = cosine,
                             .y0 = -sine * -x + cosine * -y + y});
}

}  // namespace sluice::data
