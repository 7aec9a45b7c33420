#include "data/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/check.h"

namespace sluice::data {
namespace {

constexpr int kFractionBits = 22;  // 32 bits minus 8 of a byte, minus 2 spare ones for weights outside of 0 .. 1

struct Axis {
  std::int64_t from, to;
  std::int64_t begin, count;
};

Axis rows_of(const Resizing& r) { return {r.whole.height, r.size.height, r.window.top, r.window.height}; }
Axis columns_of(const Resizing& r) { return {r.whole.width, r.size.width, r.window.left, r.window.width}; }

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

double support_of(Interpolation interpolation) { return interpolation == Interpolation::kBilinear ? 1 : 2; }

struct Taps {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

class Filter {
 public:
  Filter(const Axis& axis, Interpolation interpolation)
      : axis_(axis),
        interpolation_(interpolation),
        scale_(static_cast<double>(axis.from) / static_cast<double>(axis.to)),
        widening_(std::max(scale_, 1.0)) {}

  [[nodiscard]] bool is_identity() const { return axis_.from == axis_.to; }

  [[nodiscard]] Taps taps(std::int64_t index) const {
    if (is_identity()) return {index, 1};
    const double middle = center(index);
    const double reach = support_of(interpolation_) * widening_;
    const auto first = static_cast<std::int64_t>(middle - reach + 0.5);
    const auto last = static_cast<std::int64_t>(middle + reach + 0.5);
    const std::int64_t begin = std::max<std::int64_t>(first, 0);
    return {begin, std::min(last, axis_.from) - begin};
  }

  // Writes taps(index).count fixed-point weights; their sum is one, apart from rounding.
  void weights(std::int64_t index, const Taps& taps, std::int32_t* out) const {
    constexpr double kOne = 1 << kFractionBits;
    std::vector<double> values(static_cast<std::size_t>(taps.count));
    double sum = 0;
    for (std::int64_t i = 0; i < taps.count; ++i) {
      const double x = (static_cast<double>(i + taps.begin) - center(index) + 0.5) * (1.0 / widening_);
      values[i] = interpolation_ == Interpolation::kBilinear ? triangle(x) : cubic(x);
      sum += values[i];
    }
    for (std::int64_t i = 0; i < taps.count; ++i) {
      const double value = (sum == 0 ? values[i] : values[i] * (1.0 / sum)) * kOne;
      out[i] = static_cast<std::int32_t>(value < 0 ? value - 0.5 : value + 0.5);
    }
  }

 private:
  [[nodiscard]] double center(std::int64_t index) const { return (static_cast<double>(index) + 0.5) * scale_; }

  Axis axis_;
  Interpolation interpolation_;
  double scale_;     // source pixels per result pixel
  double widening_;  // of the filter's support
};

struct Plan {
  bool is_identity = false;
  Taps source;
  std::vector<Taps> taps;
  std::int64_t stride = 0;
  std::vector<std::int32_t> weights;  // [count, stride]
};

Taps source_range(const Axis& axis, const Filter& filter) {
  const Taps first = filter.taps(axis.begin);
  const Taps last = filter.taps(axis.begin + axis.count - 1);
  return {first.begin, last.begin + last.count - first.begin};
}

Plan plan_axis(const Axis& axis, Interpolation interpolation) {
  const Filter filter(axis, interpolation);
  Plan plan{.is_identity = filter.is_identity(), .source = source_range(axis, filter)};
  if (plan.is_identity) return plan;
  for (std::int64_t i = 0; i < axis.count; ++i) plan.taps.push_back(filter.taps(axis.begin + i));
  for (const Taps& taps : plan.taps) plan.stride = std::max(plan.stride, taps.count);
  plan.weights.resize(static_cast<std::size_t>(axis.count * plan.stride));
  for (std::int64_t i = 0; i < axis.count; ++i) {
    filter.weights(axis.begin + i, plan.taps[i], plan.weights.data() + i * plan.stride);
    plan.taps[i].begin -= plan.source.begin;
  }
  return plan;
}

std::uint8_t to_byte(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255)); }

constexpr std::int32_t kHalf = 1 << (kFractionBits - 1);

template <int kChannels>
void resample_row(const std::uint8_t* in, const Plan& plan, std::uint8_t* out) {
  for (std::size_t x = 0; x < plan.taps.size(); ++x) {
    const Taps taps = plan.taps[x];
    const std::int32_t* weights = plan.weights.data() + static_cast<std::int64_t>(x) * plan.stride;
    const std::uint8_t* pixel = in + taps.begin * kChannels;
    std::int32_t sums[kChannels];
    std::fill_n(sums, kChannels, kHalf);
    for (std::int64_t i = 0; i < taps.count; ++i, pixel += kChannels) {
      for (int c = 0; c < kChannels; ++c) sums[c] += weights[i] * pixel[c];
    }
    for (int c = 0; c < kChannels; ++c) *out++ = to_byte(sums[c]);
  }
}

Image resample_columns(const Image& in, const Plan& plan) {
  Image out({in.size.height, std::ssize(plan.taps)}, in.channels);
  for (std::int64_t y = 0; y < in.size.height; ++y) {
    if (in.channels == 3) {
      resample_row<3>(in.row(y), plan, out.row(y));
    } else {
      resample_row<1>(in.row(y), plan, out.row(y));
    }
  }
  return out;
}

Image resample_rows(const Image& in, const Plan& plan) {
  Image out({std::ssize(plan.taps), in.size.width}, in.channels);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(in.row_bytes()));
  for (std::int64_t y = 0; y < out.size.height; ++y) {
    const Taps taps = plan.taps[y];
    std::ranges::fill(sums, kHalf);
    for (std::int64_t i = 0; i < taps.count; ++i) {
      const std::int32_t weight = plan.weights[y * plan.stride + i];
      const std::uint8_t* row = in.row(taps.begin + i);
      for (std::size_t x = 0; x < sums.size(); ++x) sums[x] += weight * row[x];
    }
    std::ranges::transform(sums, out.row(y), to_byte);
  }
  return out;
}

}  // namespace

Box needed_source(const Resizing& resizing) {
  const Axis rows = rows_of(resizing), columns = columns_of(resizing);
  const Taps vertical = source_range(rows, Filter(rows, resizing.interpolation));
  const Taps horizontal = source_range(columns, Filter(columns, resizing.interpolation));
  return {vertical.begin, horizontal.begin, vertical.count, horizontal.count};
}

Image resample(const Image& source, const Resizing& resizing) {
  check(source.channels == 1 || source.channels == 3, "an image of 1 or 3 channels");
  const Plan columns = plan_axis(columns_of(resizing), resizing.interpolation);
  const Plan rows = plan_axis(rows_of(resizing), resizing.interpolation);
  check(source.size == ImageSize{rows.source.count, columns.source.count},
        "the part of the source that the window needs");
  if (columns.is_identity && rows.is_identity) return source;
  if (columns.is_identity) return resample_rows(source, rows);
  Image narrow = resample_columns(source, columns);
  return rows.is_identity ? narrow : resample_rows(narrow, rows);
}

}  // namespace sluice::data
