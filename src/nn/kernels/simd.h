// simd: a vector type as wide as the including file's instruction set, and its functions, with GCC / Clang extensions.
// All code is in namespace SLUICE_ISA and always inlined, so that no wide code is linked into a path for a narrow set.
#pragma once

#include <cstdint>
#include <cstring>
#include <numbers>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "nn/kernels/kernels.h"

#ifndef SLUICE_ISA
#error "define SLUICE_ISA to the namespace of this instruction set before including simd.h"
#endif

#define SLUICE_INLINE inline __attribute__((always_inline))

namespace sluice::nn::kernels::SLUICE_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

using Vec = float __attribute__((vector_size(kLanes * 4)));
using LooseVec = float __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
using IntVec = std::int32_t __attribute__((vector_size(kLanes * 4)));

SLUICE_INLINE Vec load(const float* from) { return *reinterpret_cast<const LooseVec*>(from); }
SLUICE_INLINE void store(float* to, Vec value) { *reinterpret_cast<LooseVec*>(to) = value; }
using UnsignedVec = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using HalfVec = std::uint16_t __attribute__((vector_size(kLanes * 2)));

SLUICE_INLINE Vec load(const Bf16* from) {
  HalfVec half;
  std::memcpy(&half, from, sizeof half);
  const UnsignedVec bits = __builtin_convertvector(half, UnsignedVec) << 16;
  Vec value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// The bfloat16 in the upper half of each lane: adding 0x7fff plus the last kept bit carries if the value must be
// rounded up. NaN is excluded, because the carry could turn it into an infinity.
SLUICE_INLINE UnsignedVec bf16_bits(Vec value) {
  UnsignedVec bits;
  std::memcpy(&bits, &value, sizeof bits);
  const UnsignedVec rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const UnsignedVec quiet_nan = bits | 0x400000;
  return value == value ? rounded : quiet_nan;
}
SLUICE_INLINE HalfVec rounded_to_bf16(Vec value) { return __builtin_convertvector(bf16_bits(value) >> 16, HalfVec); }
SLUICE_INLINE void store(Bf16* to, Vec value) {
  const HalfVec half = rounded_to_bf16(value);
  std::memcpy(to, &half, sizeof half);
}
SLUICE_INLINE Vec splat(float value) { return Vec{} + value; }

// max(value, floor) that keeps NaN, as ATen does; a NaN turned into a number would let a broken model train on.
SLUICE_INLINE Vec at_least(Vec value, Vec floor) { return value < floor ? floor : value; }
// Gradient of y = at_least(., 0): passes if y is above zero or NaN.
SLUICE_INLINE Vec relu_gradient(Vec gradient, Vec y) { return y <= Vec{} ? Vec{} : gradient; }

SLUICE_INLINE Vec load_part(const float* from, std::int64_t count) {
  Vec value{};
  std::memcpy(&value, from, static_cast<std::size_t>(count) * sizeof(float));
  return value;
}
SLUICE_INLINE void store_part(float* to, Vec value, std::int64_t count) {
  std::memcpy(to, &value, static_cast<std::size_t>(count) * sizeof(float));
}

SLUICE_INLINE Vec load_part(const Bf16* from, std::int64_t count) {
  Bf16 values[kLanes] = {};
  std::memcpy(values, from, static_cast<std::size_t>(count) * sizeof(Bf16));
  return load(values);
}
SLUICE_INLINE void store_part(Bf16* to, Vec value, std::int64_t count) {
  const HalfVec half = rounded_to_bf16(value);
  std::memcpy(to, &half, static_cast<std::size_t>(count) * sizeof(Bf16));
}

SLUICE_INLINE float horizontal_sum(Vec value) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += value[i];
  return sum;
}
// The largest lane; if a lane is NaN, the result may be any lane.
SLUICE_INLINE float horizontal_max(Vec value) {
  float best = value[0];
  for (int i = 1; i < kLanes; ++i) best = value[i] > best ? value[i] : best;
  return best;
}

// exp for arguments <= 0. Below -87 the result is about 1e-38; NaN gives NaN. Cody-Waite reduction and the Taylor
// series to degree 7: relative error below 1.5e-7.
SLUICE_INLINE Vec exp_negative(Vec x) {
  x = at_least(x, splat(-87.0F));
  const Vec magic = splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec rounded = x * std::numbers::log2e_v<float> + magic;
  const Vec n = rounded - magic;
  constexpr float kLn2High = 0.693359375F;  // NOLINT(modernize-use-std-numbers): ln 2 in two parts, exact together
  constexpr float kLn2Low = -2.12194440e-4F;
  const Vec r = (x - n * kLn2High) - n * kLn2Low;
  Vec p = splat(1.0F / 5040);
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const IntVec exponent = (__builtin_convertvector(n, IntVec) + 127) << 23;
  Vec power;
  std::memcpy(&power, &exponent, sizeof power);
  return p * power;
}

template <typename T>
struct OperandVecOf {
  using Type = Vec;
};
template <>
struct OperandVecOf<Bf16Pair> {
  using Type = UnsignedVec;  // a pair in each lane, its first number in the lower half
};

SLUICE_INLINE UnsignedVec load(const Bf16Pair* from) {
  UnsignedVec pairs;
  std::memcpy(&pairs, from, sizeof pairs);
  return pairs;
}
SLUICE_INLINE void store(Bf16Pair* to, UnsignedVec pairs) { std::memcpy(to, &pairs, sizeof pairs); }
SLUICE_INLINE UnsignedVec pairs_of(Vec first, Vec second) {
  return (bf16_bits(first) >> 16) | (bf16_bits(second) & 0xffff0000);
}

// sum + left * right; for pairs, sum plus both products.
SLUICE_INLINE Vec add_products(Vec sum, float left, Vec right) { return sum + left * right; }
SLUICE_INLINE Vec add_products(Vec sum, Bf16Pair left, UnsignedVec right) {
  std::uint32_t bits;
  std::memcpy(&bits, &left, sizeof bits);
#if defined(__AVX512BF16__)  // vector extensions have no expression for this instruction
  const UnsignedVec all = UnsignedVec{} + bits;
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(all), reinterpret_cast<__m512bh>(right));
#else
  const auto as_float = [](UnsignedVec of_float) {
    Vec value;
    std::memcpy(&value, &of_float, sizeof value);
    return value;
  };
  const UnsignedVec all = UnsignedVec{} + bits;
  sum += as_float(all << 16) * as_float(right << 16);
  return sum + as_float(all & 0xffff0000) * as_float(right & 0xffff0000);
#endif
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
