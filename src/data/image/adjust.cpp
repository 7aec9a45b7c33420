#include "data/image/adjust.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace sluice::data {
namespace {

constexpr int kValues = 256;
using Table = std::array<std::uint8_t, kValues>;
using Histogram = std::array<std::int64_t, kValues>;

// Interpolates from `plain` (factor 0) to `full` (factor 1), or extrapolates, truncated to whole numbers.
std::uint8_t blend(std::uint8_t plain, std::uint8_t full, float factor) {
  const float value = static_cast<float>(plain) + factor * static_cast<float>(full - plain);
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

std::uint8_t grey_of(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

void map_values(Image& image, const Table& table) {
  for (std::uint8_t& value : image.pixels) value = table[value];
}

void map_channel(Image& image, std::int64_t channel, const Table& table) {
  for (std::size_t i = static_cast<std::size_t>(channel); i < image.pixels.size(); i += image.channels)
    image.pixels[i] = table[image.pixels[i]];
}

template <typename Function>
Table make_table(const Function& value_of) {
  Table table{};
  for (int value = 0; value < kValues; ++value) table[value] = value_of(value);
  return table;
}

std::int64_t mean_grey(const Image& image) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += image.channels)
    sum += image.channels == 3 ? grey_of(&image.pixels[i]) : image.pixels[i];
  const auto count = static_cast<double>(image.size.height * image.size.width);
  return static_cast<std::int64_t>(static_cast<double>(sum) / count + 0.5);
}

Histogram histogram_of(const Image& image, std::int64_t channel) {
  Histogram histogram{};
  for (std::size_t i = static_cast<std::size_t>(channel); i < image.pixels.size(); i += image.channels)
    ++histogram[image.pixels[i]];
  return histogram;
}

// Weighted mean over 3 x 3 pixels, with weight 5 in the middle; the border is unchanged.
Image smoothed(const Image& image) {
  constexpr int kSum = 13;
  Image smooth = image;
  const std::int64_t step = image.channels;
  for (std::int64_t y = 1; y + 1 < image.size.height; ++y) {
    for (std::int64_t x = step; x < image.row_bytes() - step; ++x) {
      int sum = 4 * image.row(y)[x];
      for (const std::uint8_t* row : {image.row(y - 1), image.row(y), image.row(y + 1)})
        sum += row[x - step] + row[x] + row[x + step];
      smooth.row(y)[x] = static_cast<std::uint8_t>((2 * sum + kSum) / (2 * kSum));
    }
  }
  return smooth;
}

struct Hsv {
  std::uint8_t hue, saturation, value;
};

std::uint8_t cut_off(int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

Hsv hsv_of(const std::uint8_t* rgb) {
  const std::uint8_t most = std::max({rgb[0], rgb[1], rgb[2]}), least = std::min({rgb[0], rgb[1], rgb[2]});
  if (most == least) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const auto below = [&](int channel) { return static_cast<float>(most - rgb[channel]) / range; };
  float hue = 0;
  if (rgb[0] == most) {
    hue = below(2) - below(1);
  } else if (rgb[1] == most) {
    hue = static_cast<float>(2.0 + below(0) - below(2));
  } else {
    hue = static_cast<float>(4.0 + below(1) - below(0));
  }
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  const float saturation = range / static_cast<float>(most);
  return {cut_off(static_cast<int>(hue * 255.0)), cut_off(static_cast<int>(saturation * 255.0)), most};
}

void write_rgb(const Hsv& hsv, std::uint8_t* rgb) {
  const std::uint8_t value = hsv.value;
  const double sixths = hsv.hue * 6.0 / 255.0;
  const int sector = static_cast<int>(std::floor(sixths));
  const auto rest = static_cast<float>(sixths - sector);
  const auto part = static_cast<float>(hsv.saturation / 255.0);
  const auto scaled = [&](double share) { return cut_off(static_cast<int>(std::round(value * share))); };
  const std::uint8_t low = scaled(1.0 - part), falling = scaled(1.0 - part * rest),
                     rising = scaled(1.0 - part * (1.0 - rest));
  const std::array<std::array<std::uint8_t, 3>, 6> by_sector{{{value, rising, low},
                                                              {falling, value, low},
                                                              {low, value, rising},
                                                              {low, falling, value},
                                                              {rising, low, value},
                                                              {value, low, falling}}};
  std::ranges::copy(by_sector[sector % 6], rgb);
}

Table stretching(const Histogram& histogram) {
  const auto is_used = [](std::int64_t count) { return count > 0; };
  const auto low = std::ranges::find_if(histogram, is_used) - histogram.begin();
  const auto high = kValues - 1 - (std::find_if(histogram.rbegin(), histogram.rend(), is_used) - histogram.rbegin());
  if (high <= low) return make_table([](int value) { return static_cast<std::uint8_t>(value); });
  const double scale = 255.0 / static_cast<double>(high - low), offset = -static_cast<double>(low) * scale;
  return make_table([&](int value) { return cut_off(static_cast<int>(value * scale + offset)); });
}

Table equalizing(const Histogram& histogram) {
  const Table same = make_table([](int value) { return static_cast<std::uint8_t>(value); });
  const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](std::int64_t count) { return count > 0; });
  const std::int64_t total = std::accumulate(histogram.begin(), histogram.end(), std::int64_t{0});
  if (last == histogram.rend() || *last == total) return same;
  const std::int64_t step = (total - *last) / 255;
  if (step == 0) return same;
  std::int64_t count = step / 2;
  return make_table([&](int value) {
    const std::int64_t mapped = count / step;
    count += histogram[value];
    return cut_off(static_cast<int>(mapped));
  });
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  map_values(image, make_table([&](int value) { return blend(0, static_cast<std::uint8_t>(value), factor); }));
}

void adjust_contrast(Image& image, double factor) {
  const auto grey = static_cast<std::uint8_t>(mean_grey(image));
  map_values(image, make_table([&](int value) { return blend(grey, static_cast<std::uint8_t>(value), factor); }));
}

void adjust_saturation(Image& image, double factor) {
  if (image.channels != 3) return;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const std::uint8_t grey = grey_of(&image.pixels[i]);
    for (std::size_t c = i; c < i + 3; ++c) image.pixels[c] = blend(grey, image.pixels[c], factor);
  }
}

void adjust_sharpness(Image& image, double factor) {
  const Image smooth = smoothed(image);
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = blend(smooth.pixels[i], image.pixels[i], factor);
}

void adjust_hue(Image& image, double turn) {
  if (image.channels != 3) return;
  const auto shift = static_cast<std::uint8_t>(static_cast<std::int32_t>(turn * 255));
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    Hsv hsv = hsv_of(&image.pixels[i]);
    hsv.hue = static_cast<std::uint8_t>(hsv.hue + shift);
    if (hsv.saturation == 0) {
      std::fill_n(&image.pixels[i], 3, hsv.value);
    } else {
      write_rgb(hsv, &image.pixels[i]);
    }
  }
}

void posterize(Image& image, int bits) {
  const int mask = ~((1 << (8 - bits)) - 1);
  map_values(image, make_table([&](int value) { return static_cast<std::uint8_t>(value & mask); }));
}

void solarize(Image& image, double threshold) {
  map_values(image,
             make_table([&](int value) { return static_cast<std::uint8_t>(value < threshold ? value : 255 - value); }));
}

void autocontrast(Image& image) {
  for (std::int64_t c = 0; c < image.channels; ++c) map_channel(image, c, stretching(histogram_of(image, c)));
}

void equalize(Image& image) {
  for (std::int64_t c = 0; c < image.channels; ++c) map_channel(image, c, equalizing(histogram_of(image, c)));
}

}  // namespace sluice::data
