#include "nn/loss.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>

#include "core/check.h"
#include "nn/bfloat16.h"

namespace sluice::nn {
namespace {

// Numbers of top-1 hits, top-5 hits and counted targets.
using Counts = std::array<std::int64_t, 3>;

template <typename Real>
Counts count_rows(const at::Tensor& logits, const at::Tensor& targets) {
  const std::int64_t classes = logits.size(1);
  const auto* row = logits.const_data_ptr<Real>();
  const auto* target = targets.const_data_ptr<std::int64_t>();
  Counts counts{};
  for (std::int64_t i = 0; i < logits.size(0); ++i, row += classes) {
    if (target[i] == kNoTarget) continue;
    check(target[i] >= 0 && target[i] < classes, "a target below the number of classes");
    ++counts[2];
    const Real own = row[target[i]];
    if (std::isnan(own)) continue;  // comparisons with NaN are false, so it would look like the largest
    std::int64_t ahead = 0;
    for (std::int64_t c = 0; c < target[i]; ++c) ahead += row[c] >= own ? 1 : 0;
    for (std::int64_t c = target[i] + 1; c < classes; ++c) ahead += row[c] > own ? 1 : 0;
    counts[0] += ahead < 1 ? 1 : 0;
    counts[1] += ahead < 5 ? 1 : 0;
  }
  return counts;
}

Counts count_on_cpu(const at::Tensor& logits, const at::Tensor& targets) {
  const bool is_double = logits.scalar_type() == at::kDouble;
  return is_double ? count_rows<double>(logits, targets) : count_rows<float>(logits, targets);
}

bool are_shares(const at::Tensor& targets) { return targets.is_floating_point(); }

at::Tensor classes_of(const at::Tensor& targets) { return are_shares(targets) ? targets.argmax(1) : targets; }

// Up to this many logits are copied and counted on the CPU after the step: three small kernels instead of twenty.
constexpr std::int64_t kFewLogits = 1 << 17;

}  // namespace

LossFunction cross_entropy_sum(double label_smoothing) {
  return [label_smoothing](const at::Tensor& logits, const at::Tensor& targets) {
    return at::cross_entropy_loss(in_float(logits).flatten(0, -2), are_shares(targets) ? targets : targets.flatten(),
                                  {}, at::Reduction::Sum, kNoTarget, label_smoothing);
  };
}

std::int64_t count_targets(const at::Tensor& targets) {
  if (are_shares(targets)) return targets.size(0);
  return targets.ne(kNoTarget).sum().item<std::int64_t>();
}

at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor all = classes_of(targets.to(logits.device())).flatten(), rows = in_float(logits).flatten(0, -2);
  const bool is_plain = rows.scalar_type() == at::kFloat || rows.scalar_type() == at::kDouble;
  if (logits.is_cpu() && is_plain) {
    const Counts counts = count_on_cpu(rows.contiguous(), all.contiguous());
    return at::tensor({counts[0], counts[1], counts[2]}, at::kLong);
  }
  if (rows.numel() <= kFewLogits) return logits_to_count(logits, targets);
  const at::Tensor counts = all.ne(kNoTarget), column = all.masked_fill(counts.logical_not(), 0).unsqueeze(1);
  const at::Tensor own = rows.gather(1, column);
  const at::Tensor classes = at::arange(rows.size(1), column.options());
  const at::Tensor ahead = rows.gt(own).logical_or(rows.eq(own).logical_and(classes.lt(column)));
  const at::Tensor rank = ahead.sum(1).masked_fill(own.squeeze(1).isnan(), std::max<std::int64_t>(rows.size(1), 5));
  const auto number_of = [&](const at::Tensor& mask) { return mask.logical_and(counts).sum(); };
  return at::stack({number_of(rank.eq(0)), number_of(rank.lt(5)), counts.sum()});
}

at::Tensor logits_to_count(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor rows = logits.flatten(0, -2).to(at::kDouble);
  return at::cat({rows, classes_of(targets.to(logits.device())).flatten().to(at::kDouble).unsqueeze(1)}, 1);
}

EvalCounts counts_of(const at::Tensor& counted) {
  at::Tensor counts = counted.cpu();
  if (counts.dim() == 2) {
    const std::int64_t classes = counts.size(1) - 1;
    const at::Tensor rows = counts.narrow(1, 0, classes).contiguous();
    const Counts all = count_on_cpu(rows, counts.select(1, classes).to(at::kLong));
    counts = at::tensor({all[0], all[1], all[2]}, at::kLong);
  }
  const auto number = [&](int position) { return counts[position].item<std::int64_t>(); };
  return {.top1 = number(0), .top5 = number(1), .targets = number(2)};
}

}  // namespace sluice::nn
