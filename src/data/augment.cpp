#include "data/augment.h"

#include <algorithm>
#include <type_traits>

#include "core/check.h"
#include "core/rng.h"

namespace sluice::data {

std::uint64_t view_key(std::string_view purpose, std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  const auto epoch_key = derive_key(derive_key(seed, hash_name(purpose)), static_cast<std::uint64_t>(epoch));
  return derive_key(epoch_key, static_cast<std::uint64_t>(index));
}

View draw_view(const AugmentOptions& options, std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
  View view{.top = options.crop_padding, .left = options.crop_padding, .flip = false};
  if (options.crop_padding == 0 && !options.horizontal_flip) return view;
  RngStream rng(view_key("augment", seed, epoch, index));
  // All numbers are always drawn, so that switching the crop off does not change which samples are flipped.
  const auto offsets = static_cast<std::uint64_t>(2 * options.crop_padding + 1);
  view.top = static_cast<std::int64_t>(rng.below(offsets));
  view.left = static_cast<std::int64_t>(rng.below(offsets));
  view.flip = rng.below(2) == 1 && options.horizontal_flip;
  return view;
}

template <typename T>
ViewWriter<T>::ViewWriter(const DatasetInfo& info, const AugmentOptions& options)
    : height_(info.height), width_(info.width), padding_(options.crop_padding) {
  check(padding_ >= 0, "a crop padding of at least 0");
  check(std::ssize(info.mean) == info.channels && std::ssize(info.stddev) == info.channels,
        "one mean and one deviation per channel of the data set");
  for (std::size_t c = 0; c < info.mean.size(); ++c) {
    check(info.stddev[c] > 0, "positive deviations of the data set");
    auto& table = tables_.emplace_back();
    for (std::size_t pixel = 0; pixel < table.size(); ++pixel) {
      const auto value = static_cast<T>(pixel);
      if constexpr (std::is_floating_point_v<T>) {
        table[pixel] = (value / T{255} - static_cast<T>(info.mean[c])) / static_cast<T>(info.stddev[c]);
      } else {
        table[pixel] = value;
      }
    }
  }
}

template <typename T>
void ViewWriter<T>::write(std::span<const std::uint8_t> pixels, const View& view, std::span<T> out) const {
  const std::int64_t plane = height_ * width_;
  check(std::ssize(pixels) == std::ssize(tables_) * plane && out.size() == pixels.size(),
        "buffers with the size of one image");
  check(view.top >= 0 && view.top <= 2 * padding_ && view.left >= 0 && view.left <= 2 * padding_,
        "a crop within the padded image");
  for (std::int64_t c = 0; c < std::ssize(tables_); ++c) {
    const Table& table = tables_[static_cast<std::size_t>(c)];
    for (std::int64_t y = 0; y < height_; ++y) {
      T* out_row = out.data() + c * plane + y * width_;
      const std::int64_t source = y + view.top - padding_;
      if (source < 0 || source >= height_) {
        std::fill_n(out_row, width_, table[0]);
      } else {
        write_row(pixels.data() + c * plane + source * width_, view, table, out_row);
      }
    }
  }
}

template <typename T>
void ViewWriter<T>::write_row(const std::uint8_t* row, const View& view, const Table& table, T* out) const {
  const std::int64_t shift = view.left - padding_;  // out[x] = row[x + shift] if that exists
  const std::int64_t begin = std::clamp<std::int64_t>(-shift, 0, width_);
  const std::int64_t end = std::clamp<std::int64_t>(width_ - shift, 0, width_);
  if (!view.flip) {
    std::fill(out, out + begin, table[0]);
    for (std::int64_t x = begin; x < end; ++x) out[x] = table[row[x + shift]];
    std::fill(out + end, out + width_, table[0]);
  } else {
    T* last = out + width_ - 1;
    std::fill(out + width_ - begin, out + width_, table[0]);
    for (std::int64_t x = begin; x < end; ++x) last[-x] = table[row[x + shift]];
    std::fill(out, out + width_ - end, table[0]);
  }
}

template class ViewWriter<float>;
template class ViewWriter<double>;
template class ViewWriter<std::uint8_t>;

}  // namespace sluice::data
