// mix: mixup (Zhang et al., 2018, arXiv 1710.09412) and CutMix (Yun et al., 2019, arXiv 1905.04899) of a batch. As in
// torchvision, each sample is mixed with its predecessor in the batch, the first with the last. One draw per batch: a
// share from Beta(a, a), and for CutMix the middle of a rectangle. With both, each batch takes one of them with equal
// probability. A draw depends only on its key, so replicas and processes agree.
// Threads: pure; no parallel region of ATen (OpenMP).
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "data/image/image.h"

namespace sluice::data {

struct MixOptions {
  double mixup = 0;  // a of the Beta distribution; 0: off
  double cutmix = 0;

  [[nodiscard]] bool is_any() const { return mixup > 0 || cutmix > 0; }
};

struct Mix {
  double share = 1;        // weight of the sample itself; the rest is the predecessor's
  std::optional<Box> box;  // part taken from the predecessor; empty: both are blended
};

[[nodiscard]] Mix draw_mix(const MixOptions& options, std::uint64_t key, const ImageSize& size);

// Mixes samples with their predecessors. inputs: [n + 1, channels, height, width], float32 or float64, overwritten;
// returns a part of it, [n, ...].
[[nodiscard]] at::Tensor mix_inputs(const at::Tensor& inputs, const Mix& mix);
// targets: [n + 1] int64. Returns [n, classes] of `dtype`; each row sums to 1. pins: in pinned memory.
[[nodiscard]] at::Tensor mix_targets(const at::Tensor& targets, const Mix& mix, std::int64_t classes,
                                     at::ScalarType dtype, bool pins = false);

}  // namespace sluice::data
