#include "data/image_sizer.h"

#include <optional>
#include <vector>

#include "core/check.h"
#include "core/error.h"
#include "data/image/crop.h"
#include "data/image/decode.h"

namespace sluice::data {
namespace {

class Stored {
 public:
  Stored(const Dataset& dataset, std::int64_t index) {
    const DatasetInfo& info = dataset.info();
    if (info.is_encoded) {
      file_ = dataset.encoded(index);
      size_ = read_image_size(file_);
    } else {
      std::vector<std::uint8_t> planes(static_cast<std::size_t>(info.pixels()));
      dataset.read(index, planes);
      size_ = {info.height, info.width};
      decoded_ = from_planes(planes, size_, info.channels);
    }
  }

  [[nodiscard]] const ImageSize& size() const { return size_; }
  [[nodiscard]] Image part(const Box& box) const {
    return decoded_ ? part_of(*decoded_, box) : decode_image(file_, box);
  }

 private:
  std::vector<std::uint8_t> file_;
  std::optional<Image> decoded_;  // set if the data set stores pixels
  ImageSize size_;
};

}  // namespace

ImageSizer::ImageSizer(const Dataset& dataset, const SizeOptions& options, double crop_area)
    : dataset_(dataset), options_(options), crop_area_(crop_area), info_(dataset.info()) {
  check(options.image_size > 0 || !info_.is_encoded, "SizeOptions::image_size is set for encoded images");
  check(options.resize == 0 || options.resize >= options.image_size, "SizeOptions::resize of at least image_size");
  const bool is_resized = options.resize != 0 && options.resize != options.image_size;
  const auto is_size = [&](std::int64_t side) { return options.image_size == 0 || options.image_size == side; };
  changes_size_ = info_.is_encoded || is_resized || crop_area > 0 || !is_size(info_.height) || !is_size(info_.width);
  if (options.image_size > 0) info_.height = info_.width = options.image_size;
  if (options.mean.empty()) return;
  check(std::ssize(options.mean) == info_.channels && std::ssize(options.stddev) == info_.channels,
        "one mean and one deviation per channel of the images");
  info_.mean = options.mean;
  info_.stddev = options.stddev;
}

void ImageSizer::read(std::int64_t index, std::uint64_t key, std::span<std::uint8_t> pixels) const {
  check(std::ssize(pixels) == info_.pixels(), "a buffer with the size of one image");
  if (!changes_size_) return dataset_.read(index, pixels);
  try {
    const Image image = sized(index, key);
    write_planes(image.pixels, image.channels, pixels);
  } catch (const DataError& error) {
    if (!dataset_.info().is_encoded) throw;
    throw DataError(dataset_.file_of(index), ": ", error.what());
  }
}

Image ImageSizer::sized(std::int64_t index, std::uint64_t key) const {
  const Stored stored(dataset_, index);
  Box taken{0, 0, stored.size().height, stored.size().width};
  Resizing resizing{.interpolation = options_.interpolation};
  if (crop_area_ > 0) {
    RngStream rng(key);
    taken = random_crop(stored.size(), crop_area_, rng);
    resizing.size = {info_.height, info_.width};
    resizing.window = {0, 0, info_.height, info_.width};
  } else {
    resizing.size = with_shorter_side(stored.size(), options_.resize > 0 ? options_.resize : info_.height);
    resizing.window = middle_of(resizing.size, info_.height);
  }
  resizing.whole = {taken.height, taken.width};
  const Box source = needed_source(resizing);
  return resample(stored.part({taken.top + source.top, taken.left + source.left, source.height, source.width}),
                  resizing);
}

}  // namespace sluice::data
