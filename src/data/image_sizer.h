// image_sizer: the images of a data set at the size that a model takes, as bytes. In training with crop_area a random
// part of the image, resized (image/crop.h); else the image resized so that its shorter side has `resize` pixels, and
// the middle of that. Only what the result needs of a file is decoded.
// Not here: padded crops, flips and normalisation, which come after (augment.h).
// Threads: const, any number at once. Errors: what the data set throws; DataError with the file for one that is
// damaged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/image/resample.h"

namespace sluice::data {

struct SizeOptions {
  std::int64_t image_size = 0;  // height and width of what comes out; 0: as the images are, all of one size
  std::int64_t resize = 0;      // image_size or more; 0: image_size
  Interpolation interpolation = Interpolation::kBilinear;
  std::vector<double> mean, stddev;  // of normalisation, in place of the data set's; empty: those
};

class ImageSizer {
 public:
  // crop_area: the least part of an image's area that a random crop takes; 0: no random crop.
  ImageSizer(const Dataset& dataset, const SizeOptions& options, double crop_area);

  // The data set's, with the height and width of what comes out and the options' normalisation.
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
