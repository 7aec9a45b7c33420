// batch_norm_impl: batch normalisation with optional residual and ReLU for one instruction set (contracts: kernels.h).
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/simd.h"

namespace sluice::nn::kernels::SLUICE_ISA {

inline constexpr int kGroup = 4;  // vectors of channels that stay in registers over all rows
inline constexpr int kHalfGroup = 2;

template <int kVectors, typename T>
SLUICE_INLINE void load_all(const T* from, Vec (&to)[kVectors]) {
  for (int v = 0; v < kVectors; ++v) to[v] = load(from + v * kLanes);
}
template <int kVectors>
SLUICE_INLINE void store_all(float* to, const Vec (&from)[kVectors]) {
  for (int v = 0; v < kVectors; ++v) store(to + v * kLanes, from[v]);
}

// Calls body.template operator()<vectors>(first channel) for all channels, in groups.
template <typename Body>
SLUICE_INLINE void for_channels(std::int64_t channels, Body body) {
  std::int64_t c = 0;
  for (; c + kGroup * kLanes <= channels; c += kGroup * kLanes) body.template operator()<kGroup>(c);
  for (; c + kHalfGroup * kLanes <= channels; c += kHalfGroup * kLanes) body.template operator()<kHalfGroup>(c);
  for (; c < channels; c += kLanes) body.template operator()<1>(c);
}

template <typename T>
static void bn_statistics(const T* x, const float* shift, std::int64_t rows, std::int64_t channels, float* sum,
                          float* squares) {
  for_channels(channels, [&]<int kVectors>(std::int64_t c) {
    Vec base[kVectors], s[kVectors] = {}, q[kVectors] = {};
    load_all(shift + c, base);
    const T* row = x + c;
    for (std::int64_t r = 0; r < rows; ++r, row += channels) {
      for (int v = 0; v < kVectors; ++v) {
        const Vec d = load(row + v * kLanes) - base[v];
        s[v] += d;
        q[v] += d * d;
      }
    }
    store_all(sum + c, s);
    store_all(squares + c, q);
  });
}

template <bool kResidual, bool kRelu, typename T>
static void bn_apply_as(const T* x, const T* residual, const float* scale, const float* offset, std::int64_t rows,
                        std::int64_t channels, T* y) {
  for_channels(channels, [&]<int kVectors>(std::int64_t c) {
    Vec a[kVectors], b[kVectors];
    load_all(scale + c, a);
    load_all(offset + c, b);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = r * channels + c;
      for (int v = 0; v < kVectors; ++v) {
        Vec value = load(x + at + v * kLanes) * a[v] + b[v];
        if constexpr (kResidual) value += load(residual + at + v * kLanes);
        if constexpr (kRelu) value = at_least(value, Vec{});
        store(y + at + v * kLanes, value);
      }
    }
  });
}

template <typename T>
static void bn_apply(const T* x, const T* residual, const float* scale, const float* offset, std::int64_t rows,
                     std::int64_t channels, bool relu, T* y) {
  if (residual != nullptr) {
    return relu ? bn_apply_as<true, true>(x, residual, scale, offset, rows, channels, y)
                : bn_apply_as<true, false>(x, residual, scale, offset, rows, channels, y);
  }
  return relu ? bn_apply_as<false, true>(x, residual, scale, offset, rows, channels, y)
              : bn_apply_as<false, false>(x, residual, scale, offset, rows, channels, y);
}

template <bool kRelu, typename T>
static void bn_gradient_sums_as(const T* x, const T* y, const T* grad, const float* mean, std::int64_t rows,
                                std::int64_t channels, float* sum, float* dot) {
  for_channels(channels, [&]<int kVectors>(std::int64_t c) {
    Vec middle[kVectors], s[kVectors] = {}, d[kVectors] = {};
    load_all(mean + c, middle);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = r * channels + c;
      for (int v = 0; v < kVectors; ++v) {
        Vec g = load(grad + at + v * kLanes);
        if constexpr (kRelu) g = relu_gradient(g, load(y + at + v * kLanes));
        s[v] += g;
        d[v] += g * (load(x + at + v * kLanes) - middle[v]);
      }
    }
    store_all(sum + c, s);
    store_all(dot + c, d);
  });
}

template <typename T>
static void bn_gradient_sums(const T* x, const T* y, const T* grad, const float* mean, std::int64_t rows,
                             std::int64_t channels, float* sum, float* dot) {
  return y != nullptr ? bn_gradient_sums_as<true>(x, y, grad, mean, rows, channels, sum, dot)
                      : bn_gradient_sums_as<false>(x, y, grad, mean, rows, channels, sum, dot);
}

template <bool kRelu, bool kResidual, typename T>
static void bn_gradient_as(const T* x, const T* y, const T* grad, const float* mean, const float* a, const float* b,
                           const float* c, std::int64_t rows, std::int64_t channels, T* grad_x, T* grad_residual) {
  for_channels(channels, [&]<int kVectors>(std::int64_t first) {
    Vec middle[kVectors], ka[kVectors], kb[kVectors], kc[kVectors];
    load_all(mean + first, middle);
    load_all(a + first, ka);
    load_all(b + first, kb);
    load_all(c + first, kc);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = r * channels + first;
      for (int v = 0; v < kVectors; ++v) {
        Vec g = load(grad + at + v * kLanes);
        if constexpr (kRelu) g = relu_gradient(g, load(y + at + v * kLanes));
        if constexpr (kResidual) store(grad_residual + at + v * kLanes, g);
        store(grad_x + at + v * kLanes, ka[v] * g + (kb[v] * (load(x + at + v * kLanes) - middle[v]) + kc[v]));
      }
    }
  });
}

template <typename T>
static void bn_gradient(const T* x, const T* y, const T* grad, const float* mean, const float* a, const float* b,
                        const float* c, std::int64_t rows, std::int64_t channels, T* grad_x, T* grad_residual) {
  if (grad_residual != nullptr) {
    return y != nullptr ? bn_gradient_as<true, true>(x, y, grad, mean, a, b, c, rows, channels, grad_x, grad_residual)
                        : bn_gradient_as<false, true>(x, y, grad, mean, a, b, c, rows, channels, grad_x, grad_residual);
  }
  return y != nullptr ? bn_gradient_as<true, false>(x, y, grad, mean, a, b, c, rows, channels, grad_x, grad_residual)
                      : bn_gradient_as<false, false>(x, y, grad, mean, a, b, c, rows, channels, grad_x, grad_residual);
}

template <typename T>
static constexpr BatchNormKernels<T> batch_norm_kernels() {
  return {bn_statistics<T>, bn_apply<T>, bn_gradient_sums<T>, bn_gradient<T>};
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
