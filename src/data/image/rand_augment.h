// rand_augment: some operations drawn out of fourteen, all of one strength, as torchvision's RandAugment (Cubuk et al.
// 2020, arXiv 1909.13719) does with its 31 strengths; and torchvision's ColorJitter.
// Threads: pure; an RngStream belongs to its caller.
#pragma once

#include <cstdint>

#include "core/rng.h"
#include "data/image/image.h"

namespace sluice::data {

enum class Operation : std::uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr int kOperations = 14;
inline constexpr int kMostStrength = 30;

// torchvision's, of strength 0 .. kMostStrength, without a sign: slopes, pixels, degrees, differences of a factor from
// 1, bits, a threshold.
[[nodiscard]] double magnitude_of(Operation operation, int strength, const ImageSize& image);
void apply(Image& image, Operation operation, double magnitude);

// `count` operations one after the other, each drawn anew, those with a direction in either.
void rand_augment(Image& image, int count, int strength, RngStream& rng);

// How far each factor may be off 1, and the turn of the hue off 0 (at most 0.5).
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;

  [[nodiscard]] bool is_any() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};
// Each by a factor of its own, in a drawn order.
void jitter_colors(Image& image, const ColorJitter& jitter, RngStream& rng);

}  // namespace sluice::data
