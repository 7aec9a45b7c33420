#include "data/image/rand_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "data/image/adjust.h"
#include "data/image/affine.h"

namespace sluice::data {
namespace {

constexpr double kFarthest = 150.0 / 331.0;  // of the width or height; the paper's images have 331 pixels

bool has_direction(Operation operation) {
  return operation >= Operation::kShearX && operation <= Operation::kSharpness;
}

}  // namespace

double magnitude_of(Operation operation, int strength, const ImageSize& image) {
  const double part = static_cast<double>(strength) / kMostStrength;
  switch (operation) {
    case Operation::kShearX:
    case Operation::kShearY: return 0.3 * part;
    case Operation::kTranslateX: return kFarthest * static_cast<double>(image.width) * part;
    case Operation::kTranslateY: return kFarthest * static_cast<double>(image.height) * part;
    case Operation::kRotate: return 30 * part;
    case Operation::kBrightness:
    case Operation::kColor:
    case Operation::kContrast:
    case Operation::kSharpness: return 0.9 * part;
    case Operation::kPosterize: return 8 - std::nearbyint(4 * part);
    case Operation::kSolarize: return 255 * (1 - part);
    case Operation::kIdentity:
    case Operation::kAutoContrast:
    case Operation::kEqualize: return 0;
  }
  return 0;
}

void apply(Image& image, Operation operation, double magnitude) {
  switch (operation) {
    case Operation::kIdentity: return;
    case Operation::kShearX: image = sheared_in_x(image, magnitude); return;
    case Operation::kShearY: image = sheared_in_y(image, magnitude); return;
    case Operation::kTranslateX: image = moved(image, static_cast<std::int64_t>(magnitude), 0); return;
    case Operation::kTranslateY: image = moved(image, 0, static_cast<std::int64_t>(magnitude)); return;
    case Operation::kRotate: image = rotated(image, magnitude); return;
    case Operation::kBrightness: adjust_brightness(image, 1 + magnitude); return;
    case Operation::kColor: adjust_saturation(image, 1 + magnitude); return;
    case Operation::kContrast: adjust_contrast(image, 1 + magnitude); return;
    case Operation::kSharpness: adjust_sharpness(image, 1 + magnitude); return;
    case Operation::kPosterize: posterize(image, static_cast<int>(magnitude)); return;
    case Operation::kSolarize: solarize(image, magnitude); return;
    case Operation::kAutoContrast: autocontrast(image); return;
    case Operation::kEqualize: equalize(image); return;
  }
}

void rand_augment(Image& image, int count, int strength, RngStream& rng) {
  for (int i = 0; i < count; ++i) {
    const auto operation = static_cast<Operation>(rng.below(kOperations));
    const bool is_turned = rng.below(2) == 1 && has_direction(operation);
    const double magnitude = magnitude_of(operation, strength, image.size);
    apply(image, operation, is_turned ? -magnitude : magnitude);
  }
}

void jitter_colors(Image& image, const ColorJitter& jitter, RngStream& rng) {
  std::array order{0, 1, 2, 3};
  shuffle(order, rng);
  const auto factor = [&](double range) { return rng.uniform(std::max(0.0, 1 - range), 1 + range); };
  const double brightness = factor(jitter.brightness), contrast = factor(jitter.contrast),
               saturation = factor(jitter.saturation), turn = rng.uniform(-jitter.hue, jitter.hue);
  for (const int which : order) {
    if (which == 0 && jitter.brightness > 0) adjust_brightness(image, brightness);
    if (which == 1 && jitter.contrast > 0) adjust_contrast(image, contrast);
    if (which == 2 && jitter.saturation > 0) adjust_saturation(image, saturation);
    if (which == 3 && jitter.hue > 0) adjust_hue(image, turn);
  }
}

}  // namespace sluice::data
