// gelu_math: GELU and its derivative in GPU kernels, with ATen's formulas, so that infinite and NaN inputs agree.
#pragma once

#include <cmath>

#include "nn/cuda/device_code.h"

namespace sluice::nn::gpu {

enum class GeluForm { kExact, kTanh };

// x Phi(x) with the exact distribution function.
struct ExactGelu {
  SLUICE_DEVICE static float cumulative(float x) { return 0.5F * (1.0F + ::erff(x * 0.707106781F)); }
  SLUICE_DEVICE static float value(float x) { return x * cumulative(x); }
  SLUICE_DEVICE static float slope(float x) { return cumulative(x) + x * (::expf(-0.5F * x * x) * 0.398942280F); }
};

struct TanhGelu {
  static constexpr float kScale = 0.797884561F, kCube = 0.044715F;
  SLUICE_DEVICE static float tanh_part(float x) { return ::tanhf(kScale * (x + kCube * x * x * x)); }
  SLUICE_DEVICE static float value(float x) { return 0.5F * x * (1.0F + tanh_part(x)); }
  SLUICE_DEVICE static float slope(float x) {
    const float t = tanh_part(x);
    return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kScale * (1.0F + 3.0F * kCube * x * x);
  }
};

}  // namespace sluice::nn::gpu
