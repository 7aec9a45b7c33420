// winograd_filters: the one-dimensional matrices of Winograd's minimal filtering F(m, 3) as sums of vectors, for one
// instruction set: `in` times B', A', A, G or G'.
#pragma once

#include "nn/kernels/simd.h"

namespace sluice::nn::kernels::SLUICE_ISA {

template <int kOutputs>
struct WinogradFilter;

// Points 0, 1, -1. From Lavin and Gray, "Fast algorithms for convolutional neural networks" (2016), section 4.1:
//   B' = 1 0 -1  0     G = 1    0   0      A' = 1 1  1  0
//        0 1  1  0         1/2  1/2 1/2         0 1 -1 -1
//        0 -1 1  0         1/2 -1/2 1/2
//        0 1  0 -1         0    0   1
template <>
struct WinogradFilter<2> {
  SLUICE_INLINE static void input(const Vec (&d)[4], Vec (&out)[4]) {
    out[0] = d[0] - d[2], out[1] = d[1] + d[2], out[2] = d[2] - d[1], out[3] = d[1] - d[3];
  }
  SLUICE_INLINE static void output(const Vec (&m)[4], Vec (&out)[2]) {
    out[0] = m[0] + m[1] + m[2], out[1] = m[1] - m[2] - m[3];
  }
  SLUICE_INLINE static void output_gradient(const Vec (&y)[2], Vec (&out)[4]) {
    out[0] = y[0], out[1] = y[0] + y[1], out[2] = y[0] - y[1], out[3] = -y[1];
  }
  SLUICE_INLINE static void weight(const Vec (&g)[3], Vec (&out)[4]) {
    const Vec ends = 0.5F * (g[0] + g[2]), middle = 0.5F * g[1];
    out[0] = g[0], out[1] = ends + middle, out[2] = ends - middle, out[3] = g[2];
  }
  SLUICE_INLINE static void weight_gradient(const Vec (&u)[4], Vec (&out)[3]) {
    const Vec sum = 0.5F * (u[1] + u[2]);
    out[0] = u[0] + sum, out[1] = 0.5F * (u[1] - u[2]), out[2] = sum + u[3];
  }
};

// Points 0, a, -a, b, -b with a = 5/8 and b = 3/2. Among multiples of 1/16 these give the least rounding error, less
// than half of that of the usual 1 and 2 (docs/results/performance.md). All factors but those of G are exact. With N(p)
// the product of the differences between p and the other points:
//   B' = a2 b2    0    -(a2+b2)     0     1  0    G = 1/(a2 b2)     0         0       A' = 1 1  1  1  1  0
//          0   -a b2     -b2        a     1  0        1/N(a)      a/N(a)   a2/N(a)         0 a -a  b -b  0
//          0    a b2     -b2       -a     1  0        1/N(a)     -a/N(a)   a2/N(a)         0 a2 a2 b2 b2 0
//          0   -a2 b     -a2        b     1  0        1/N(b)      b/N(b)   b2/N(b)         0 a3 -a3 b3 -b3 1
//          0    a2 b     -a2       -b     1  0        1/N(b)     -b/N(b)   b2/N(b)
//          0   a2 b2      0     -(a2+b2)  0  1           0          0         1
template <>
struct WinogradFilter<4> {
  static constexpr float kA = 0.625F, kB = 1.5F, kA2 = kA * kA, kB2 = kB * kB, kA3 = kA * kA2, kB3 = kB * kB2;
  static constexpr float kSum = kA2 + kB2, kProduct = kA2 * kB2;
  static constexpr double kNa = 2.0 * kA2 * (kA2 - kB2), kNb = 2.0 * kB2 * (kB2 - kA2);
  static constexpr auto kZeroth = static_cast<float>(1.0 / kProduct);
  static constexpr auto kEvenA = static_cast<float>(1.0 / kNa), kOddA = static_cast<float>(kA / kNa);
  static constexpr auto kEvenB = static_cast<float>(1.0 / kNb), kOddB = static_cast<float>(kB / kNb);

  SLUICE_INLINE static void input(const Vec (&d)[6], Vec (&out)[6]) {
    const Vec even_a = d[4] - kB2 * d[2], odd_a = d[3] - kB2 * d[1];
    const Vec even_b = d[4] - kA2 * d[2], odd_b = d[3] - kA2 * d[1];
    out[0] = kProduct * d[0] + (d[4] - kSum * d[2]);
    out[1] = even_a + kA * odd_a, out[2] = even_a - kA * odd_a;
    out[3] = even_b + kB * odd_b, out[4] = even_b - kB * odd_b;
    out[5] = kProduct * d[1] + (d[5] - kSum * d[3]);
  }
  SLUICE_INLINE static void output(const Vec (&m)[6], Vec (&out)[4]) {
    const Vec even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
    out[0] = m[0] + (even_a + even_b);
    out[1] = kA * odd_a + kB * odd_b;
    out[2] = kA2 * even_a + kB2 * even_b;
    out[3] = kA3 * odd_a + kB3 * odd_b + m[5];
  }
  SLUICE_INLINE static void output_gradient(const Vec (&y)[4], Vec (&out)[6]) {
    const Vec even_a = y[0] + kA2 * y[2], odd_a = kA * y[1] + kA3 * y[3];
    const Vec even_b = y[0] + kB2 * y[2], odd_b = kB * y[1] + kB3 * y[3];
    out[0] = y[0];
    out[1] = even_a + odd_a, out[2] = even_a - odd_a;
    out[3] = even_b + odd_b, out[4] = even_b - odd_b;
    out[5] = y[3];
  }
  SLUICE_INLINE static void weight(const Vec (&g)[3], Vec (&out)[6]) {
    const Vec even_a = kEvenA * (g[0] + kA2 * g[2]), odd_a = kOddA * g[1];
    const Vec even_b = kEvenB * (g[0] + kB2 * g[2]), odd_b = kOddB * g[1];
    out[0] = kZeroth * g[0];
    out[1] = even_a + odd_a, out[2] = even_a - odd_a;
    out[3] = even_b + odd_b, out[4] = even_b - odd_b;
    out[5] = g[2];
  }
  SLUICE_INLINE static void weight_gradient(const Vec (&u)[6], Vec (&out)[3]) {
    const Vec even_a = kEvenA * (u[1] + u[2]), even_b = kEvenB * (u[3] + u[4]);
    out[0] = kZeroth * u[0] + (even_a + even_b);
    out[1] = kOddA * (u[1] - u[2]) + kOddB * (u[3] - u[4]);
    out[2] = kA2 * even_a + kB2 * even_b + u[5];
  }
};

}  // namespace sluice::nn::kernels::SLUICE_ISA
