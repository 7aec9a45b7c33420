#include "train/loss.h"

#include <ATen/ATen.h>

namespace sluice::train {

pipeline::LossFunction cross_entropy_sum(double label_smoothing) {
  return [label_smoothing](const at::Tensor& logits, const at::Tensor& targets) {
    return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, at::Reduction::Sum, kNoTarget,
                                  label_smoothing);
  };
}

std::int64_t count_targets(const at::Tensor& targets) { return targets.ne(kNoTarget).sum().item<std::int64_t>(); }

EvalCounts& EvalCounts::operator+=(const EvalCounts& other) {
  loss_sum += other.loss_sum;
  top1 += other.top1;
  top5 += other.top5;
  samples += other.samples;
  return *this;
}

EvalCounts count_correct(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor all = targets.to(logits.device()).flatten(), counted = all.ne(kNoTarget).nonzero().squeeze(1);
  const bool counts_all = counted.size(0) == all.size(0);
  const at::Tensor rows = counts_all ? logits.flatten(0, -2) : logits.flatten(0, -2).index_select(0, counted);
  const at::Tensor column = (counts_all ? all : all.index_select(0, counted)).unsqueeze(1);
  const at::Tensor own = rows.gather(1, column);
  const at::Tensor classes = at::arange(rows.size(1), column.options());
  const at::Tensor ahead = rows.gt(own).logical_or(rows.eq(own).logical_and(classes.lt(column)));
  // A NaN compares as false: such a row must not look like a perfect one.
  const at::Tensor rank = ahead.sum(1).masked_fill(own.squeeze(1).isnan(), rows.size(1));
  EvalCounts counts;
  counts.top1 = rank.eq(0).sum().item<std::int64_t>();
  counts.top5 = rank.lt(5).sum().item<std::int64_t>();
  counts.samples = column.size(0);
  return counts;
}

}  // namespace sluice::train
