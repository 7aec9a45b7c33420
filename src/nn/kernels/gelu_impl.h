// gelu_impl: GELU for one instruction set (contracts: kernels.h).
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/simd.h"

namespace sluice::nn::kernels::SLUICE_ISA {

struct NormalDistribution {
  Vec cumulative;   // Phi(x)
  Vec exponential;  // exp(-x^2 / 2)
};

// erfc(z) exp(z^2) as a polynomial in t = 1 / (1 + z / 2), so that one exponential serves both Phi and its density. The
// project's own least-squares fit with Lawson weights to the relative error over z in [0, 9.5]: 8e-8.
SLUICE_INLINE NormalDistribution normal_distribution(Vec x) {
  const Vec size = x < Vec{} ? -x : x;
  const Vec t = 1.0F / (1.0F + size * 0.353553391F);  // z / 2 = |x| / (2 sqrt 2)
  Vec p = splat(-0.0588917881F);
  p = p * t + 0.283706754F;
  p = p * t + -0.485393286F;
  p = p * t + 0.275988668F;
  p = p * t + -0.0251845699F;
  p = p * t + 0.202072591F;
  p = p * t + 0.243260354F;
  p = p * t + 0.28235358F;
  p = p * t + 0.282087684F;
  p = p * t;
  const Vec exponential = exp_negative(x * x * -0.5F);
  const Vec tail = 0.5F * p * exponential;  // Phi(-|x|)
  return {x < Vec{} ? tail : 1.0F - tail, exponential};
}

SLUICE_INLINE Vec gelu_of(Vec x) { return x * normal_distribution(x).cumulative; }

SLUICE_INLINE Vec gelu_slope(Vec x) {
  const NormalDistribution normal = normal_distribution(x);
  return normal.cumulative + x * normal.exponential * 0.398942280F;  // Phi + x phi
}

template <typename T>
static void gelu_forward(const T* x, std::int64_t count, T* y) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, gelu_of(load(x + i)));
  if (i < count) store_part(y + i, gelu_of(load_part(x + i, count - i)), count - i);
}

template <typename T>
static void gelu_backward(const T* x, const T* grad, std::int64_t count, T* grad_x) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(grad_x + i, load(grad + i) * gelu_slope(load(x + i)));
  if (i < count) {
    const std::int64_t rest = count - i;
    store_part(grad_x + i, load_part(grad + i, rest) * gelu_slope(load_part(x + i, rest)), rest);
  }
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
