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
  targets += other.targets;
  return *this;
}

at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor all = targets.to(logits.device()).flatten(), counts = all.ne(kNoTarget);
  const at::Tensor rows = logits.flatten(0, -2), column = all.masked_fill(counts.logical_not(), 0).unsqueeze(1);
  const at::Tensor own = rows.gather(1, column);
  const at::Tensor classes = at::arange(rows.size(1), column.options());
  const at::Tensor ahead = rows.gt(own).logical_or(rows.eq(own).logical_and(classes.lt(column)));
  // A NaN compares as false: such a row must not look like a perfect one.
  const at::Tensor rank = ahead.sum(1).masked_fill(own.squeeze(1).isnan(), rows.size(1));
  const auto number_of = [&](const at::Tensor& places) { return places.logical_and(counts).sum(); };
  return at::stack({number_of(rank.eq(0)), number_of(rank.lt(5)), counts.sum()});
}

EvalCounts counts_of(const at::Tensor& counted) {
  const at::Tensor counts = counted.cpu();
  const auto number = [&](int position) { return counts[position].item<std::int64_t>(); };
  return {.top1 = number(0), .top5 = number(1), .targets = number(2)};
}

}  // namespace sluice::train
