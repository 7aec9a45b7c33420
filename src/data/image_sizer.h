// image_sizer: resizes images to the model's size, as bytes. In training with crop_area: a random part, resized
// (image/crop.h). Otherwise: the shorter side becomes `resize` pixels and the middle is taken. Threads: const, any
// number at once. Errors: those of the data set; DataError with the name of a damaged file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/image/resample.h"

namespace sluice::data {

struct SizeOptions {
  std::int64_t image_size = 0;  // height and width of the result; 0: the images' own, which must be equal
  std::int64_t resize = 0;      // at least image_size; 0: image_size
  Interpolation interpolation = Interpolation::kBilinear;
  std::vector<double> mean, stddev;  // normalisation that replaces the data set's; empty: the data set's
};

class ImageSizer {
 public:
  ImageSizer(const Dataset& dataset, const SizeOptions& options, double crop_area);

  [[nodiscard]] const DatasetInfo& info() const { return info_; }

  // Writes [channels, height, width]. `key`: of the random numbers.
  void read(std::int64_t index, std::uint64_t key, std::span<std::uint8_t> pixels) const;

 private:
  [[nodiscard]] Image sized(std::int64_t index, std::uint64_t key) const;

  const Dataset& dataset_;
  const SizeOptions options_;
  const double crop_area_;
  DatasetInfo info_;
  bool changes_size_;
};

}  // namespace sluice::data
