// loss: cross-entropy summed over the targets (so that micro-batches of any size weigh every target equally), and the
// counts that evaluation reports. A target is the class of a sample, [n], each position's token in a sequence, [n, T],
// or the shares that the classes have in a sample, [n, classes] of floating point, whose largest is the one that
// counts. One of kNoTarget (padding, a masked token) counts nowhere: not in the loss, not among the right ones, not in
// the number that sums are divided by. That number is the global batch's: micro-batches hold different numbers of
// targets.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "core/step_stats.h"

namespace sluice::nn {

// The loss of a micro-batch: summed over its targets, so that micro-batches of unequal size weigh every one equally.
using LossFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& targets)>;

inline constexpr std::int64_t kNoTarget = -100;  // PyTorch's and Hugging Face's ignore_index

// logits [n, classes], targets [n] int64 or [n, classes] of shares; or logits [n, T, classes], targets [n, T] ->
// scalar.
[[nodiscard]] LossFunction cross_entropy_sum(double label_smoothing);

// How many of them count.
[[nodiscard]] std::int64_t count_targets(const at::Tensor& targets);

// The counts of a micro-batch as a tensor on the device of its logits, which nobody waits for here: for counts_of().
// Shapes as for cross_entropy_sum(). A target's rank is the number of classes with a larger logit, plus those before it
// with an equal one, so that a constant output is not counted as right. On the CPU one pass over the logits.
[[nodiscard]] at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& targets);
// What it gives of few logits on a GPU: [n, classes + 1], each row with its target behind it.
[[nodiscard]] at::Tensor logits_to_count(const at::Tensor& logits, const at::Tensor& targets);

// Without the loss.
[[nodiscard]] EvalCounts counts_of(const at::Tensor& counted);

}  // namespace sluice::nn
