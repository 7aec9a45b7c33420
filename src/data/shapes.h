// shapes: a synthetic data set without files. Each image shows one of ten figures at a random place, size, slight
// rotation and colours, with noise. A sample is a pure function of (seed, split, index). Each ten consecutive samples
// (0-9, 10-19, ..) contain every class once. Drawing uses only exactly rounded arithmetic (+ - * / sqrt), so that
// machines agree on the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "data/dataset.h"

namespace sluice::data {

struct ShapesOptions {
  std::int64_t samples = 10000;  // training split; the test split has a fifth, at least one
  std::int64_t channels = 3;     // 1 or 3
  std::int64_t image_size = 32;  // 8 to 1024 pixels
  std::uint64_t seed = 0;
};

inline constexpr std::array<std::string_view, 10> kShapeNames = {"disc", "ring",  "square",  "frame",   "triangle",
                                                                 "plus", "cross", "stripes", "columns", "checkerboard"};

[[nodiscard]] std::unique_ptr<Dataset> make_shapes(const ShapesOptions& options, Split split);

}  // namespace sluice::data
