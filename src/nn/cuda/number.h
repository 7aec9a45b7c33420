// number: float and bfloat16 in GPU kernels, which compute in float and round to nearest even, as ATen does.
#pragma once

#include <cstdint>
#include <cstring>

#include "nn/cuda/device_code.h"
#include "nn/kernels/kernels.h"

namespace sluice::nn::gpu {

using kernels::Bf16;

SLUICE_DEVICE inline float widened(float value) { return value; }
SLUICE_DEVICE inline float widened(Bf16 value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16U;
  float wide;
  memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

SLUICE_DEVICE inline void narrow(float value, float& to) { to = value; }
SLUICE_DEVICE inline void narrow(float value, Bf16& to) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t nearest = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
  to.bits = static_cast<std::uint16_t>(value != value ? 0x7fc0U : nearest);  // NaN stays NaN
}

// Consecutive numbers, read or written by one instruction if they are aligned.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Run {
  T values[kCount];
};

template <typename T, int kCount>
SLUICE_DEVICE inline void read_run(const T* from, float (&values)[kCount]) {
  const Run<T, kCount> run = *reinterpret_cast<const Run<T, kCount>*>(from);
  for (int j = 0; j < kCount; ++j) values[j] = widened(run.values[j]);
}

template <typename T, int kCount>
SLUICE_DEVICE inline void write_run(const float (&values)[kCount], T* to) {
  Run<T, kCount> run;
  for (int j = 0; j < kCount; ++j) narrow(values[j], run.values[j]);
  *reinterpret_cast<Run<T, kCount>*>(to) = run;
}

// Parameters may lie at any address of a flat buffer, and the order of sums must not depend on the address.
template <int kCount>
SLUICE_DEVICE inline void read_parameters(const float* from, float (&values)[kCount]) {
  for (int j = 0; j < kCount; ++j) values[j] = from[j];
}

}  // namespace sluice::nn::gpu
