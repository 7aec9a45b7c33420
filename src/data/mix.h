// mix: mixup (Zhang et al., 2018, arXiv 1710.09412) and CutMix (Yun et al., 2019, arXiv 1905.04899) of a batch. As in
// torchvision's transforms each sample is mixed with the one before it in the batch, the first with the last, and one
// draw holds for the whole batch: a share from Beta(a, a), of CutMix also the middle of the rectangle, which is cut off
// at the edges. With both set each batch has one of them, drawn evenly. The targets become shares of the classes.
// A draw depends on its key alone: not on loader threads, replicas or processes, which mix their part of the batch
// alike. Not here: which sample is before which (loader.h). Threads: pure functions; no parallel region of ATen
// (OpenMP).
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "data/image/image.h"

namespace sluice::data {

struct MixOptions {
  double mixup = 0;   // a of the Beta distribution; 0: none
  double cutmix = 0;  // likewise

  [[nodiscard]] bool is_any() const { return mixup > 0 || cutmix > 0; }
};

struct Mix {
  double share = 1;        // of a sample itself; the rest is the other one's
  std::optional<Box> box;  // what is taken from the other one; nothing: the two are blended
};

// Requires: options.is_any().
[[nodiscard]] Mix draw_mix(const MixOptions& options, std::uint64_t key, const ImageSize& size);

// Of n + 1 samples in the order of the batch: each but the first, mixed with the one before it.
// inputs: [n + 1, channels, height, width], float32 or float64, written over; gives [n, ...], a part of it.
[[nodiscard]] at::Tensor mix_inputs(const at::Tensor& inputs, const Mix& mix);
// targets: [n + 1] int64; gives [n, classes] of `dtype`, each row of sum 1. pins: into pinned memory.
[[nodiscard]] at::Tensor mix_targets(const at::Tensor& targets, const Mix& mix, std::int64_t classes,
                                     at::ScalarType dtype, bool pins = false);

}  // namespace sluice::data
