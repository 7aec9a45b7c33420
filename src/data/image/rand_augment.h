// rand_augment: torchvision's RandAugment (Cubuk et al. 2020, arXiv 1909.13719) with fourteen operations and 31
// strengths, and torchvision's ColorJitter. Threads: pure; an RngStream belongs to its caller.
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

// torchvision's magnitude, without a sign, for strength 0 .. kMostStrength.
[[nodiscard]] double magnitude_of(Operation operation, int strength, const ImageSize& image);
void apply(Image& image, Operation operation, double magnitude);

void rand_augment(Image& image, int count, int strength, RngStream& rng);

// Largest difference of each factor from 1; hue: largest turn, at most 0.5.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;

  [[nodiscard]] bool is_any() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};
void jitter_colors(Image& image, const ColorJitter& jitter, RngStream& rng);

}  // namespace sluice::data
