// loss: cross-entropy summed over the samples (so that micro-batches of any size weigh every sample equally), and the
// counts that evaluation reports.
#pragma once

#include <cstdint>

#include "pipeline/stage.h"

namespace sluice::train {

// logits [n, classes], targets [n] int64 -> scalar.
[[nodiscard]] pipeline::LossFunction cross_entropy_sum(double label_smoothing);

struct EvalCounts {
  double loss_sum = 0;
  std::int64_t top1 = 0;  // samples whose target has the largest logit
  std::int64_t top5 = 0;  // samples whose target is among the five largest; all of them when there are fewer classes
  std::int64_t samples = 0;

  EvalCounts& operator+=(const EvalCounts& other);
  [[nodiscard]] double loss() const { return loss_sum / static_cast<double>(samples); }
  [[nodiscard]] double top1_percent() const { return 100.0 * static_cast<double>(top1) / static_cast<double>(samples); }
  [[nodiscard]] double top5_percent() const { return 100.0 * static_cast<double>(top5) / static_cast<double>(samples); }
};

// Without the loss. A target's rank is the number of classes with a larger logit, plus those before it with an equal
// one, so that a constant output is not counted as right.
[[nodiscard]] EvalCounts count_correct(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace sluice::train
