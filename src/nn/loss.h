// loss: cross-entropy summed over the targets, and the counts that evaluation reports. A target is a class ([n]), a
// token per position ([n, T]), or class probabilities ([n, classes]), the largest of which is the class to predict.
// Targets of kNoTarget (padding) are not counted. The divisor is the number of targets in the global batch, because
// micro-batches have different numbers of targets.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "core/step_stats.h"

namespace sluice::nn {

using LossFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& targets)>;

inline constexpr std::int64_t kNoTarget = -100;  // ignore_index of PyTorch and Hugging Face

// Returns a scalar. logits [n, classes]: targets [n] int64 or [n, classes]; logits [n, T, classes]: targets [n, T].
[[nodiscard]] LossFunction cross_entropy_sum(double label_smoothing);

[[nodiscard]] std::int64_t count_targets(const at::Tensor& targets);

// Counts of a micro-batch on the device of its logits, for counts_of(); the call does not wait. Among equal logits the
// lower class comes first, so a constant output is not counted as correct.
[[nodiscard]] at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& targets);
// [n, classes + 1], each row followed by its target: replaces count_correct() for few logits on a GPU.
[[nodiscard]] at::Tensor logits_to_count(const at::Tensor& logits, const at::Tensor& targets);

[[nodiscard]] EvalCounts counts_of(const at::Tensor& counted);

}  // namespace sluice::nn
