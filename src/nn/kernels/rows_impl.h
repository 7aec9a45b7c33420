// rows_impl: RMS norm, SwiGLU, rotary positions and cross-entropy for one instruction set (contracts: kernels.h).
#pragma once

#include <limits>

#include "nn/kernels/kernels.h"
#include "nn/kernels/simd.h"

namespace sluice::nn::kernels::SLUICE_ISA {

// A whole vector in memory, or its first `count` values; the other lanes are `fill`.
struct Whole {
  template <typename T>
  SLUICE_INLINE Vec read(const T* from, float /*fill*/ = 0) const {
    return load(from);
  }
  template <typename T>
  SLUICE_INLINE void write(T* to, Vec value) const {
    store(to, value);
  }
  SLUICE_INLINE Vec kept(Vec value) const { return value; }
};
struct Part {
  std::int64_t count;

  template <typename T>
  SLUICE_INLINE Vec read(const T* from, float fill = 0) const {
    Vec value = load_part(from, count);
    for (int i = 0; i < kLanes; ++i) value[i] = i < count ? value[i] : fill;
    return value;
  }
  template <typename T>
  SLUICE_INLINE void write(T* to, Vec value) const {
    store_part(to, value, count);
  }
  SLUICE_INLINE Vec kept(Vec value) const {
    for (int i = 0; i < kLanes; ++i) value[i] = i < count ? value[i] : 0;
    return value;
  }
};

// Calls body(first, part) for the vectors of `count` values.
template <typename Body>
SLUICE_INLINE void for_each_vector(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, Whole{});
  if (i < count) body(i, Part{count - i});
}

template <typename T>
SLUICE_INLINE Vec as_stored(Vec value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else {
    const UnsignedVec bits = bf16_bits(value) & 0xffff0000;
    Vec rounded;
    std::memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
  }
}

template <typename In, typename Out>
static void rms_norm_forward(const In* x, const float* weight, float epsilon, std::int64_t rows, std::int64_t width,
                             Out* y, float* inverse) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    Vec squares{};
    for_each_vector(width, [&](std::int64_t i, auto part) {
      const Vec value = part.read(x + i);
      squares += value * value;
    });
    inverse[r] = 1.0F / __builtin_sqrtf(horizontal_sum(squares) / static_cast<float>(width) + epsilon);
    for_each_vector(width, [&](std::int64_t i, auto part) {
      part.write(y + i, as_stored<Out>(part.read(x + i) * inverse[r]) * part.read(weight + i));
    });
  }
}

// With n = x inverse and g = grad weight: dx = inverse (g - n mean(g n)).
template <typename In, typename Out>
static void rms_norm_backward(const In* x, const Out* grad, const float* weight, const float* inverse,
                              std::int64_t rows, std::int64_t width, In* grad_x, float* grad_weight) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, grad += width, grad_x += width) {
    Vec dot{};
    for_each_vector(width, [&](std::int64_t i, auto part) {
      const Vec product = part.read(grad + i) * (part.read(x + i) * inverse[r]);
      dot += product * part.read(weight + i);
      part.write(grad_weight + i, part.read(grad_weight + i) + product);
    });
    const float mean = horizontal_sum(dot) / static_cast<float>(width);
    for_each_vector(width, [&](std::int64_t i, auto part) {
      const Vec slope = part.read(grad + i) * part.read(weight + i);
      part.write(grad_x + i, (slope - part.read(x + i) * inverse[r] * mean) * inverse[r]);
    });
  }
}

SLUICE_INLINE Vec sigmoid(Vec x) {
  const Vec power = exp_negative(x < Vec{} ? x : -x);
  return (x < Vec{} ? power : splat(1.0F)) / (1.0F + power);
}

template <typename T>
static void swiglu_forward(const T* gated, std::int64_t rows, std::int64_t width, T* y) {
  for (std::int64_t r = 0; r < rows; ++r, gated += 2 * width, y += width) {
    for_each_vector(width, [&](std::int64_t i, auto part) {
      const Vec gate = part.read(gated + i);
      part.write(y + i, gate * sigmoid(gate) * part.read(gated + width + i));
    });
  }
}

template <typename T>
static void swiglu_backward(const T* gated, const T* grad, std::int64_t rows, std::int64_t width, T* grad_gated) {
  for (std::int64_t r = 0; r < rows; ++r, gated += 2 * width, grad += width, grad_gated += 2 * width) {
    for_each_vector(width, [&](std::int64_t i, auto part) {
      const Vec gate = part.read(gated + i), upper = part.read(grad + i), s = sigmoid(gate);
      const Vec slope = s * (1.0F + gate * (1.0F - s));
      part.write(grad_gated + i, upper * part.read(gated + width + i) * slope);
      part.write(grad_gated + width + i, upper * (gate * s));
    });
  }
}

template <typename T>
static void rotate(const T* x, const float* cosine, const float* sine, float direction, std::int64_t heads,
                   std::int64_t half, T* y) {
  for (std::int64_t h = 0; h < heads; ++h, x += 2 * half, y += 2 * half) {
    for_each_vector(half, [&](std::int64_t i, auto part) {
      const Vec first = part.read(x + i), second = part.read(x + half + i);
      const Vec c = part.read(cosine + i), s = part.read(sine + i) * direction;
      part.write(y + i, first * c - second * s);
      part.write(y + half + i, second * c + first * s);
    });
  }
}

template <typename T>
static RowSums exponential_sums(const T* row, std::int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Vec largest = splat(kLowest), exponentials{}, sum{};
  for_each_vector(count, [&](std::int64_t i, auto part) { largest = at_least(largest, part.read(row + i, kLowest)); });
  const float top = horizontal_max(largest);
  for_each_vector(count, [&](std::int64_t i, auto part) {
    const Vec value = part.read(row + i);
    exponentials += part.kept(exp_negative(value - top));
    sum += value;
  });
  return {top, horizontal_sum(exponentials), horizontal_sum(sum)};
}

template <typename T>
static void softmax_gradient(const T* row, std::int64_t count, float log_sum, float factor, float offset, T* grad) {
  for_each_vector(count, [&](std::int64_t i, auto part) {
    part.write(grad + i, factor * (exp_negative(part.read(row + i) - log_sum) - offset));
  });
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
