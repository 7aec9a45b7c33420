// color_view: changes to a view besides crop and flip: ColorJitter and RandAugment (image/rand_augment.h) on bytes,
// after both; random erasing at the end, on normalised values. Threads: const, any number at once.
#pragma once

#include <cstdint>
#include <span>

#include "core/rng.h"
#include "data/augment.h"

namespace sluice::data {

class ColorView {
 public:
  ColorView(const DatasetInfo& info, const AugmentOptions& options);

  [[nodiscard]] bool is_any() const { return options_.changes_colors(); }
  // Applies crop and flip, then changes the colours, in the order of torchvision's reference training.
  void apply(std::span<std::uint8_t> pixels, const View& view, RngStream rng) const;

 private:
  const AugmentOptions options_;
  const std::int64_t channels_;
  const ImageSize size_;
  const ViewWriter<std::uint8_t> views_;
};

// torchvision's RandomErasing: with a probability of options.erasing, a part of 2 to 33 % of the image, with height /
// width of 0.3 to 3.3, becomes 0. values: [channels, height, width].
template <typename T>
void erase_part(std::span<T> values, const ImageSize& size, const AugmentOptions& options, RngStream rng);

extern template void erase_part(std::span<float>, const ImageSize&, const AugmentOptions&, RngStream);
extern template void erase_part(std::span<double>, const ImageSize&, const AugmentOptions&, RngStream);

}  // namespace sluice::data
