#include "data/color_view.h"

#include <algorithm>
#include <vector>

#include "data/image/crop.h"

namespace sluice::data {
namespace {

AugmentOptions only_view(const AugmentOptions& options) {
  return {.crop_padding = options.crop_padding, .horizontal_flip = options.horizontal_flip};
}

}  // namespace

ColorView::ColorView(const DatasetInfo& info, const AugmentOptions& options)
    : options_(options), channels_(info.channels), size_{info.height, info.width}, views_(info, only_view(options)) {}

void ColorView::apply(std::span<std::uint8_t> pixels, const View& view, RngStream rng) const {
  std::vector<std::uint8_t> planes(pixels.size());
  views_.write(pixels, view, planes);
  Image image = from_planes(planes, size_, channels_);
  if (options_.jitter.is_any()) jitter_colors(image, options_.jitter, rng);
  rand_augment(image, options_.rand_augment, options_.rand_augment_strength, rng);
  write_planes(image.pixels, image.channels, pixels);
}

template <typename T>
void erase_part(std::span<T> values, const ImageSize& size, const AugmentOptions& options, RngStream rng) {
  if (rng.uniform() >= options.erasing) return;
  const auto part = random_part_to_erase(size, rng);
  if (!part) return;
  const std::int64_t plane = size.height * size.width;
  for (std::int64_t begin = 0; begin < std::ssize(values); begin += plane) {
    for (std::int64_t y = part->top; y < part->top + part->height; ++y)
      std::fill_n(values.data() + begin + y * size.width + part->left, part->width, T{0});
  }
}

template void erase_part(std::span<float>, const ImageSize&, const AugmentOptions&, RngStream);
template void erase_part(std::span<double>, const ImageSize&, const AugmentOptions&, RngStream);

}  // namespace sluice::data
