// color_view: what changes the colours of a view and more than a crop and a flip: ColorJitter and RandAugment
// (image/rand_augment.h) after both, on bytes; random erasing at the end, of normalised values.
// Threads: const and shared freely.
#pragma once

#include <cstdint>
#include <span>

#include "core/rng.h"
#include "data/augment.h"

namespace sluice::data {

class ColorView {
 public:
  ColorView(const DatasetInfo& info, const AugmentOptions& options);

  // Whether there is anything to do on bytes.
  [[nodiscard]] bool is_any() const { return options_.changes_colors(); }
  // Takes the view of the pixels, then changes their colours; in the order of torchvision's reference training.
  void apply(std::span<std::uint8_t> pixels, const View& view, RngStream rng) const;

 private:
  const AugmentOptions options_;
  const std::int64_t channels_;
  const ImageSize size_;
  const ViewWriter<std::uint8_t> views_;
};

// With a probability of options.erasing a part of 2 to 33 % of the image, 0.3 to 3.3 times as high as wide, becomes 0:
// torchvision's RandomErasing. values: [channels, height, width].
template <typename T>
void erase_part(std::span<T> values, const ImageSize& size, const AugmentOptions& options, RngStream rng);

extern template void erase_part(std::span<float>, const ImageSize&, const AugmentOptions&, RngStream);
extern template void erase_part(std::span<double>, const ImageSize&, const AugmentOptions&, RngStream);

}  // namespace sluice::data
