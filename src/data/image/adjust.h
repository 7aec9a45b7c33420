// adjust: colours of an RGB image changed in place, byte for byte as Pillow does it for torchvision's
// adjust_brightness, adjust_contrast, adjust_saturation, adjust_sharpness, adjust_hue, posterize, solarize,
// autocontrast and equalize. Images of one channel: brightness, contrast and the last four as for one channel;
// saturation and hue change nothing. Threads: pure.
#pragma once

#include "data/image/image.h"

namespace sluice::data {

// A factor of 1 changes nothing, 0 gives black, an even grey, grey, or smooth; above 1 it is the other way round.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);

// turn: -0.5 .. 0.5 of the circle of hues.
void adjust_hue(Image& image, double turn);

// Keeps the upper `bits` of 8.
void posterize(Image& image, int bits);
// Inverts the values from the threshold on.
void solarize(Image& image, double threshold);
// Stretches each channel to 0 .. 255, evenly or so that all values are about equally frequent.
void autocontrast(Image& image);
void equalize(Image& image);

}  // namespace sluice::data
