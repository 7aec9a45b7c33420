// adjust: colour operations on an image in place, byte-equal to Pillow's in torchvision's functions of these names. On
// images of one channel, saturation and hue change nothing. Threads: pure.
#pragma once

#include "data/image/image.h"

namespace sluice::data {

// Factor 1 changes nothing; 0 gives black, an even grey, a grey or a smoothed image; above 1 the effect reverses.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);

// turn: -0.5 .. 0.5 of the hue circle.
void adjust_hue(Image& image, double turn);

void posterize(Image& image, int bits);
// Inverts values at or above the threshold.
void solarize(Image& image, double threshold);
// Stretch each channel to 0 .. 255: linearly, or so that all values are about equally frequent.
void autocontrast(Image& image);
void equalize(Image& image);

}  // namespace sluice::data
