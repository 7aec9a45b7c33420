// pointwise_impl: GELU and layer normalisation for one instruction set (see kernels.h for the contracts).
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/simd.h"

namespace sluice::nn::kernels::SLUICE_ISA {

struct NormalDistribution {
  Vec cumulative;   // Phi(x)
  Vec exponential;  // exp(-x^2 / 2)
};

// erfc(z) exp(z^2) as a polynomial in t = 1 / (1 + z / 2), fitted to the relative error over z in [0, 9.5] (our own
// least-squares fit with Lawson weights): 8e-8. One exponential then serves both Phi and its density.
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

static void gelu_forward(const float* x, std::int64_t count, float* y) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, gelu_of(load(x + i)));
  if (i < count) store_part(y + i, gelu_of(load_part(x + i, count - i)), count - i);
}

static void gelu_backward(const float* x, const float* grad, std::int64_t count, float* grad_x) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(grad_x + i, load(grad + i) * gelu_slope(load(x + i)));
  if (i < count) {
    const std::int64_t rest = count - i;
    store_part(grad_x + i, load_part(grad + i, rest) * gelu_slope(load_part(x + i, rest)), rest);
  }
}

// Calls body(offset, load function, store function) over a row, the last piece in part.
template <typename Full, typename Part>
SLUICE_INLINE void for_row(std::int64_t width, Full full, Part part) {
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) full(i);
  if (i < width) part(i, width - i);
}

static void layer_norm_forward(const float* x, const float* weight, const float* bias, std::int64_t rows,
                               std::int64_t width, float epsilon, float* y, float* mean, float* inverse_deviation) {
  for (std::int64_t row = 0; row < rows; ++row, x += width, y += width) {
    Vec sum{};
    for_row(
        width, [&](std::int64_t i) { sum += load(x + i); },
        [&](std::int64_t i, std::int64_t rest) { sum += load_part(x + i, rest); });
    const float middle = horizontal_sum(sum) / static_cast<float>(width);
    Vec squares{};
    float part_squares = 0;
    for_row(
        width,
        [&](std::int64_t i) {
          const Vec d = load(x + i) - middle;
          squares += d * d;
        },
        [&](std::int64_t i, std::int64_t rest) {
          for (std::int64_t j = i; j < i + rest; ++j) part_squares += (x[j] - middle) * (x[j] - middle);
        });
    const float variance = (horizontal_sum(squares) + part_squares) / static_cast<float>(width);
    const float scale = 1.0F / __builtin_sqrtf(variance + epsilon);
    for_row(
        width, [&](std::int64_t i) { store(y + i, (load(x + i) - middle) * scale * load(weight + i) + load(bias + i)); },
        [&](std::int64_t i, std::int64_t rest) {
          const Vec value = (load_part(x + i, rest) - middle) * scale * load_part(weight + i, rest);
          store_part(y + i, value + load_part(bias + i, rest), rest);
        });
    mean[row] = middle;
    inverse_deviation[row] = scale;
  }
}

// With h = (x - mean) * scale and g = grad * weight: grad_x = scale * (g - mean(g) - h * mean(g h)).
static void layer_norm_backward(const float* x, const float* grad, const float* weight, const float* mean,
                                const float* inverse_deviation, std::int64_t rows, std::int64_t width, float* grad_x,
                                float* grad_weight, float* grad_bias) {
  for (std::int64_t row = 0; row < rows; ++row, x += width, grad += width, grad_x += width) {
    const float middle = mean[row], scale = inverse_deviation[row];
    Vec sum{}, dot{};
    for_row(
        width,
        [&](std::int64_t i) {
          const Vec upper = load(grad + i), h = (load(x + i) - middle) * scale, g = upper * load(weight + i);
          sum += g;
          dot += g * h;
          store(grad_weight + i, load(grad_weight + i) + upper * h);
          store(grad_bias + i, load(grad_bias + i) + upper);
        },
        [&](std::int64_t i, std::int64_t rest) {
          const Vec upper = load_part(grad + i, rest), h = (load_part(x + i, rest) - middle) * scale;
          const Vec g = upper * load_part(weight + i, rest);
          sum += g;
          dot += g * h;
          store_part(grad_weight + i, load_part(grad_weight + i, rest) + upper * h, rest);
          store_part(grad_bias + i, load_part(grad_bias + i, rest) + upper, rest);
        });
    const float mean_g = horizontal_sum(sum) / static_cast<float>(width);
    const float mean_gh = horizontal_sum(dot) / static_cast<float>(width);
    for_row(
        width,
        [&](std::int64_t i) {
          const Vec h = (load(x + i) - middle) * scale;
          store(grad_x + i, scale * (load(grad + i) * load(weight + i) - mean_g - h * mean_gh));
        },
        [&](std::int64_t i, std::int64_t rest) {
          const Vec h = (load_part(x + i, rest) - middle) * scale;
          const Vec g = load_part(grad + i, rest) * load_part(weight + i, rest);
          store_part(grad_x + i, scale * (g - mean_g - h * mean_gh), rest);
        });
  }
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
