// color_view: ColorJitter and RandAugment (image/rand_augment.h) on bytes, after crop and flip; random erasing at the
// end, on normalised values. Threads: const, any number at once.
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

// torchvision's RandomErasing: with probability options.erasing, 2 to 33 % of [channels, height, width] becomes 0.
template <typename T>
void erase_part(std::span<T> values, const ImageSize& size, const AugmentOptions& options, RngStream rng);

extern template void erase_part(std::span<float>, const ImageSize&, const AugmentOptions&, RngStream);
extern template void erase_part(std::span<double>, const ImageSize&, const AugmentOptions&, RngStream);

}  // namespace sluice::data
