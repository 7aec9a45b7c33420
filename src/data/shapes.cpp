#include "data/shapes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/error.h"
#include "core/rng.h"

namespace sluice::data {
namespace {

constexpr std::int64_t kShapeClasses = std::ssize(kShapeNames);

// Signed distances, negative inside, in coordinates in which the figure fills about -1 .. 1 and v points down.
double plus(double u, double v) {
  const double x = std::abs(u), y = std::abs(v);
  constexpr double kArm = 0.28;
  return std::min(std::max(x - kArm, y - 1), std::max(x - 1, y - kArm));
}

double bands(double t) {
  constexpr double kPeriod = 0.8;
  const double nearest = kPeriod * std::floor(t / kPeriod + 0.5);
  return std::abs(t - nearest) - kPeriod / 4;
}

double figure_distance(std::int64_t kind, double u, double v) {
  constexpr double kHalfSqrt3 = 0.8660254037844386, kHalfSqrt2 = 0.7071067811865476;
  const double radius = std::sqrt(u * u + v * v);
  const double side = std::max(std::abs(u), std::abs(v));
  switch (kind) {
    case 0: return radius - 1;
    case 1: return std::abs(radius - 0.8) - 0.2;
    case 2: return side - 0.85;
    case 3: return std::abs(side - 0.7) - 0.2;
    case 4: return std::max(v, kHalfSqrt3 * std::abs(u) - v / 2) - 0.6;
    case 5: return plus(u, v);
    case 6: return plus(kHalfSqrt2 * (u + v), kHalfSqrt2 * (u - v));
    case 7: return std::max(radius - 1, bands(v));
    case 8: return std::max(radius - 1, bands(u));
    case 9: {  // inside exactly one of the two bands
      const double a = bands(u), b = bands(v);
      return std::max({radius - 1, std::min(a, b), -std::max(a, b)});
    }
    default: check(false, "a known shape"); return 0;
  }
}

struct Pose {
  double x, y;
  double half_size;  // length of 1 in figure coordinates
  double cosine, sine;
};

Pose draw_pose(RngStream& rng) {
  const double tangent = rng.uniform(-0.3, 0.3);  // up to 17 degrees
  const double cosine = 1 / std::sqrt(1 + tangent * tangent);
  return {.x = rng.uniform(0.38, 0.62),
          .y = rng.uniform(0.38, 0.62),
          .half_size = rng.uniform(0.22, 0.36),
          .cosine = cosine,
          .sine = tangent * cosine};
}

class ShapesDataset final : public Dataset {
 public:
  ShapesDataset(const ShapesOptions& options, Split split)
      : size_(split == Split::kTrain ? options.samples : std::max<std::int64_t>(1, options.samples / 5)),
        key_(derive_key(options.seed, hash_name(split == Split::kTrain ? "shapes/train" : "shapes/test"))) {
    const auto channels = static_cast<std::size_t>(options.channels);
    info_ = {.name = "shapes",
             .split = split,
             .channels = options.channels,
             .height = options.image_size,
             .width = options.image_size,
             .classes = kShapeClasses,
             .mean = std::vector<double>(channels, 0.288),
             .stddev = std::vector<double>(channels, 0.182)};
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  [[nodiscard]] std::int64_t target(std::int64_t index) const override;

 private:
  [[nodiscard]] std::vector<double> coverage(std::int64_t kind, const Pose& pose) const;

  DatasetInfo info_;
  std::int64_t size_;
  std::uint64_t key_;
};

std::int64_t ShapesDataset::target(std::int64_t index) const {
  std::array<std::int64_t, kShapeClasses> kinds{};
  std::iota(kinds.begin(), kinds.end(), std::int64_t{0});
  const auto group = static_cast<std::uint64_t>(checked(index) / kShapeClasses);
  RngStream rng(derive_key(derive_key(key_, hash_name("kinds")), group));
  shuffle(kinds, rng);
  return kinds[static_cast<std::size_t>(index % kShapeClasses)];
}

// Share of each pixel that the figure covers: [height, width], 0 to 1, with an edge that is one pixel wide.
std::vector<double> ShapesDataset::coverage(std::int64_t kind, const Pose& pose) const {
  const auto side = static_cast<double>(info_.height);
  std::vector<double> covered;
  covered.reserve(static_cast<std::size_t>(info_.height * info_.width));
  for (std::int64_t row = 0; row < info_.height; ++row) {
    const double dy = ((static_cast<double>(row) + 0.5) / side - pose.y) / pose.half_size;
    for (std::int64_t column = 0; column < info_.width; ++column) {
      const double dx = ((static_cast<double>(column) + 0.5) / side - pose.x) / pose.half_size;
      const double u = pose.cosine * dx + pose.sine * dy;
      const double v = pose.cosine * dy - pose.sine * dx;
      covered.push_back(std::clamp(0.5 - figure_distance(kind, u, v) * pose.half_size * side, 0.0, 1.0));
    }
  }
  return covered;
}

void ShapesDataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  check(std::ssize(pixels) == info_.pixels(), "a buffer with the size of one image");
  const std::int64_t kind = target(index);
  RngStream rng(derive_key(derive_key(key_, hash_name("pixels")), static_cast<std::uint64_t>(index)));
  const auto covered = coverage(kind, draw_pose(rng));
  const std::size_t plane = covered.size();
  for (std::int64_t c = 0; c < info_.channels; ++c) {
    const double ground = 20 + 70 * rng.uniform();
    const double contrast = 60 + 80 * rng.uniform();
    const auto out = pixels.subspan(static_cast<std::size_t>(c) * plane, plane);
    std::uint32_t word = 0;  // one byte of noise per pixel
    for (std::size_t i = 0; i < plane; ++i) {
      word = i % 4 == 0 ? rng() : word >> 8;
      const double noise = (static_cast<double>(word & 0xff) - 127.5) * 0.25;  // up to 32 either way
      out[i] = static_cast<std::uint8_t>(std::clamp(ground + contrast * covered[i] + noise + 0.5, 0.0, 255.0));
    }
  }
}

}  // namespace

std::unique_ptr<Dataset> make_shapes(const ShapesOptions& options, Split split) {
  if (options.samples < 1) throw ConfigError("data.samples = ", options.samples, "; set at least 1");
  if (options.channels != 1 && options.channels != 3) {
    throw ConfigError("model.channels = ", options.channels, "; shapes are drawn with 1 or 3");
  }
  if (options.image_size < 8 || options.image_size > 1024) {
    throw ConfigError("model.image_size = ", options.image_size, "; shapes are drawn with 8 to 1024 pixels");
  }
  return std::make_unique<ShapesDataset>(options, split);
}

}  // namespace sluice::data
