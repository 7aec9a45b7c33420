#include "train/loss.h"

#include <ATen/ATen.h>

namespace sluice::train {

pipeline::LossFunction cross_entropy_sum(double label_smoothing) {
  return [label_smoothing](const at::Tensor& logits, const at::Tensor& targets) {
    return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, /*ignore_index=*/-100, label_smoothing);
  };
}

EvalCounts& EvalCounts::operator+=(const EvalCounts& other) {
  loss_sum += other.loss_sum;
  top1 += other.top1;
  top5 += other.top5;
  samples += other.samples;
  return *this;
}

EvalCounts count_correct(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor column = targets.to(logits.device()).unsqueeze(1);
  const at::Tensor own = logits.gather(1, column);
  const at::Tensor classes = at::arange(logits.size(1), column.options());
  const at::Tensor ahead = logits.gt(own).logical_or(logits.eq(own).logical_and(classes.lt(column)));
  // A NaN compares as false: such a row must not look like a perfect one.
  const at::Tensor rank = ahead.sum(1).masked_fill(own.squeeze(1).isnan(), logits.size(1));
  EvalCounts counts;
  counts.top1 = rank.eq(0).sum().item<std::int64_t>();
  counts.top5 = rank.lt(5).sum().item<std::int64_t>();
  counts.samples = targets.size(0);
  return counts;
}

}  // namespace sluice::train
