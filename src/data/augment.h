// augment: turns the bytes of an image into normalised floating point, in training with a random crop and flip. Order,
// after image_sizer.h: zero padding, crop, horizontal flip, then (pixel / 255 - mean) / stddev, computed in T as
// torchvision's ToTensor and Normalize. A view depends only on (seed, epoch, index). Threads: const, any number.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/image/rand_augment.h"

namespace sluice::data {

struct AugmentOptions {
  double crop_area = 0;           // least part of the area that a random resized crop takes (image_sizer.h); 0: no crop
  std::int64_t crop_padding = 0;  // pixels on every side; 0: no padded crop
  bool horizontal_flip = false;
  ColorJitter jitter;
  int rand_augment = 0;           // operations of RandAugment; 0: none
  int rand_augment_strength = 9;  // 0 .. kMostStrength
  double erasing = 0;             // probability that a part is erased

  [[nodiscard]] bool has_views() const {
    return crop_area > 0 || crop_padding > 0 || horizontal_flip || changes_colors() || erasing > 0;
  }
  [[nodiscard]] bool changes_colors() const { return jitter.is_any() || rand_augment > 0; }
};

// Crop position in the padded image, and the flip. {padding, padding, false} changes nothing.
struct View {
  std::int64_t top = 0;  // 0 .. 2 * crop_padding
  std::int64_t left = 0;
  bool flip = false;
  bool operator==(const View&) const = default;
};

[[nodiscard]] View draw_view(const AugmentOptions& options, std::uint64_t seed, std::int64_t epoch, std::int64_t index);

// Key of the other random parts of a view. purpose: "crop" (random resized), "colors" or "erasing".
[[nodiscard]] std::uint64_t view_key(std::string_view purpose, std::uint64_t seed, std::int64_t epoch,
                                     std::int64_t index);

// Writes views of the images of one data set. T: float or double, normalised; or std::uint8_t, not normalised.
template <typename T>
class ViewWriter {
 public:
  ViewWriter(const DatasetInfo& info, const AugmentOptions& options);

  void write(std::span<const std::uint8_t> pixels, const View& view, std::span<T> out) const;

 private:
  using Table = std::array<T, 256>;
  void write_row(const std::uint8_t* row, const View& view, const Table& table, T* out) const;

  std::int64_t height_;
  std::int64_t width_;
  std::int64_t padding_;
  std::vector<Table> tables_;
};

extern template class ViewWriter<float>;
extern template class ViewWriter<double>;
extern template class ViewWriter<std::uint8_t>;

}  // namespace sluice::data
