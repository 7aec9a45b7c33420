// keyed_bits: the random numbers of core/rng.h in GPU kernels, for dropout masks. A test compares the bits of both.
#pragma once

#include "core/rng.h"
#include "nn/cuda/device_code.h"

#define R123_CUDA_DEVICE SLUICE_DEVICE
#include <Random123/philox.h>

#include <cstdint>

namespace sluice::nn::gpu {

constexpr int kWordsInBlock = 4;

struct Block {
  std::uint32_t words[kWordsInBlock];
};

SLUICE_DEVICE inline Block philox_block(std::uint64_t key, std::uint64_t high, std::uint64_t low) {
  r123::Philox4x32::ctr_type counter;
  counter.v[0] = static_cast<std::uint32_t>(low);
  counter.v[1] = static_cast<std::uint32_t>(low >> 32U);
  counter.v[2] = static_cast<std::uint32_t>(high);
  counter.v[3] = static_cast<std::uint32_t>(high >> 32U);
  r123::Philox4x32::key_type philox_key;
  philox_key.v[0] = static_cast<std::uint32_t>(key);
  philox_key.v[1] = static_cast<std::uint32_t>(key >> 32U);
  const r123::Philox4x32::ctr_type block = r123::Philox4x32{}(counter, philox_key);
  return {{block.v[0], block.v[1], block.v[2], block.v[3]}};
}

SLUICE_DEVICE inline std::uint64_t derived_key(std::uint64_t key, std::uint64_t value) {
  const Block block = philox_block(key, kDerivedKeyCounter, value);
  return (static_cast<std::uint64_t>(block.words[1]) << 32U) | block.words[0];
}

// Parameters of one layer's dropout mask. Element i of a sample takes word i % 4 of block i / 4 under the sample's key:
// below the threshold it is dropped, else multiplied by `kept`. If `kept` is 0, it is a number from [0, 1) itself.
struct MaskNumbers {
  std::uint64_t layer_key;  // of the call site in this step; if `step` is set, of the call site alone
  std::uint64_t threshold;  // 2^32 times the dropout probability
  float kept;
  const std::int64_t* step = nullptr;  // GPU memory that holds the step number; null: the step is part of layer_key
};

SLUICE_DEVICE inline std::uint64_t key_in_step(const MaskNumbers& mask) {
  if (mask.step == nullptr) return mask.layer_key;
  return derived_key(mask.layer_key, static_cast<std::uint64_t>(*mask.step));
}

SLUICE_DEVICE inline std::uint64_t sample_key(const MaskNumbers& mask, std::int64_t sample) {
  return derived_key(key_in_step(mask), static_cast<std::uint64_t>(sample));
}

SLUICE_DEVICE inline float mask_factor(const MaskNumbers& mask, std::uint32_t word) {
  if (mask.kept == 0) return static_cast<float>(word >> 8U) * 0x1.0p-24F;
  return word < mask.threshold ? 0.0F : mask.kept;
}

}  // namespace sluice::nn::gpu
