// cross_entropy: the loss over large vocabularies without float32 copies of the logits. Forward keeps one number per
// row beside the logits; backward writes the gradient in their type. Kernels of this project run for float32 and
// bfloat16, on CPUs and on GPUs with kernels. Otherwise ATen runs, in slices of rows if there are many logits. Sums are
// float32 (float64 for float64 logits).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace sluice::nn {

inline constexpr std::int64_t kNoTarget = -100;  // not counted; ignore_index of PyTorch and Hugging Face

// Sum of the losses of all targets other than kNoTarget, as at::cross_entropy_loss() with Reduction::Sum. Scalar.
// A target that is no class: check() fails on CPUs; the loss is NaN on GPUs, which do not wait. An infinite logit: NaN.
// logits: [..., classes]; targets: [...] int64, or class probabilities in the shape of the logits (ATen's loss runs).
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, double label_smoothing);

// [m] int64: indices in targets.flatten() of targets other than kNoTarget; {0} if no target counts, so that m >= 1.
at::Tensor rows_with_targets(const at::Tensor& targets);

}  // namespace sluice::nn
