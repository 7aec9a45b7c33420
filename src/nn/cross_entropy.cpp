#include "nn/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "nn/bfloat16.h"
#include "nn/cuda/operations.h"
#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kSliceValues = std::int64_t{1} << 24;  // 64 MiB of float32

using gpu::RowLosses;

// The target's probability is 1 - smoothing + smoothing / classes, that of other classes smoothing / classes.
template <typename T>
RowLosses losses_on_cpu(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  RowLosses result{at::empty({rows}, at::kFloat), at::empty({rows}, at::kFloat)};
  const T* from = values_of<T>(logits);
  const auto* target = values_of<std::int64_t>(targets);
  auto *losses = mutable_values_of<float>(result.losses), *log_sums = mutable_values_of<float>(result.log_sums);
  parallel_for(0, rows, kPieceValues / classes + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      losses[i] = log_sums[i] = 0;
      if (target[i] == kNoTarget) continue;
      check(target[i] >= 0 && target[i] < classes, "a target below the number of classes");
      const T* row = from + i * classes;
      const kernels::RowSums sums = kernels::best().cross_entropy.of<T>().sums(row, classes);
      log_sums[i] = sums.largest + std::log(sums.exponentials);
      losses[i] = log_sums[i] - static_cast<float>(1 - smoothing) * number(row[target[i]]);
      if (smoothing > 0) losses[i] -= static_cast<float>(smoothing) * (sums.sum / static_cast<float>(classes));
    }
  });
  return result;
}

at::BFloat16 rounded(float value, kernels::Bf16 /*type*/) { return {value}; }
float rounded(float value, float /*type*/) { return value; }

template <typename T>
at::Tensor gradient_on_cpu(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sums,
                           double smoothing, float factor) {
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  at::Tensor grad = at::empty_like(logits);
  const T* from = values_of<T>(logits);
  T* to = mutable_values_of<T>(grad);
  const auto* target = values_of<std::int64_t>(targets);
  const auto* sums = values_of<float>(log_sums);
  const auto offset = static_cast<float>(smoothing / static_cast<double>(classes));
  parallel_for(0, rows, kPieceValues / classes + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      T* row = to + i * classes;
      if (target[i] == kNoTarget) {
        std::fill_n(row, classes, T{});
        continue;
      }
      kernels::best().cross_entropy.of<T>().gradient(from + i * classes, classes, sums[i], factor, offset, row);
      const float own = number(from[i * classes + target[i]]);
      const auto share = static_cast<float>(1 - smoothing) + offset;
      row[target[i]] = std::bit_cast<T>(rounded(factor * (std::exp(own - sums[i]) - share), T{}));
    }
  });
  return grad;
}

// Calls body(first row, rows) for slices of at most kSliceValues logits.
template <typename Body>
void for_each_slice(const at::Tensor& logits, const Body& body) {
  const std::int64_t rows = logits.size(0), step = std::max<std::int64_t>(1, kSliceValues / logits.size(1));
  for (std::int64_t first = 0; first < rows; first += step) body(first, std::min(step, rows - first));
}

struct TargetColumn {
  at::Tensor is_missing, column;  // [rows, 1]

  explicit TargetColumn(const at::Tensor& targets)
      : is_missing(targets.eq(kNoTarget).unsqueeze(1)), column(targets.unsqueeze(1).masked_fill(is_missing, 0)) {}
};

RowLosses losses_by_aten(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  std::vector<at::Tensor> losses, log_sums;
  for_each_slice(logits, [&](std::int64_t first, std::int64_t rows) {
    const at::Tensor wide = in_float(logits.narrow(0, first, rows));
    const TargetColumn target(targets.narrow(0, first, rows));
    // Not at::logsumexp: with an infinite logit this is NaN, as the loss of ATen.
    const at::Tensor largest = wide.amax(1, /*keepdim=*/true);
    const at::Tensor log_sum = largest + (wide - largest).exp_().sum(1, /*keepdim=*/true).log_();
    at::Tensor loss = log_sum - (1 - smoothing) * wide.gather(1, target.column);
    if (smoothing > 0) loss = loss - smoothing * wide.mean(1, /*keepdim=*/true);
    losses.push_back(loss.masked_fill(target.is_missing, 0));
    log_sums.push_back(log_sum);
  });
  return {at::cat(losses).squeeze(1), at::cat(log_sums).squeeze(1)};
}

at::Tensor gradient_by_aten(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sums,
                            double smoothing, const at::Tensor& factor) {
  at::Tensor grad = at::empty_like(logits);
  for_each_slice(logits, [&](std::int64_t first, std::int64_t rows) {
    const TargetColumn target(targets.narrow(0, first, rows));
    at::Tensor slope = (in_float(logits.narrow(0, first, rows)) - log_sums.narrow(0, first, rows).unsqueeze(1)).exp_();
    if (smoothing > 0) slope.sub_(smoothing / static_cast<double>(logits.size(1)));
    slope.scatter_add_(1, target.column, at::full_like(target.column, smoothing - 1, slope.scalar_type()));
    grad.narrow(0, first, rows).copy_(slope.mul_(factor).masked_fill_(target.is_missing, 0));
  });
  return grad;
}

RowLosses losses_of(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  if (gpu::suits(logits)) return gpu::cross_entropy(logits, targets, smoothing);
  if (!suits_kernels(logits)) return losses_by_aten(logits, targets, smoothing);
  return with_type_of(logits, [&](auto number) { return losses_on_cpu<decltype(number)>(logits, targets, smoothing); });
}

at::Tensor gradient_of(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sums,
                       double smoothing, const at::Tensor& factor) {
  if (gpu::suits(logits)) return gpu::cross_entropy_backward(logits, targets, log_sums, factor, smoothing);
  if (!suits_kernels(logits)) return gradient_by_aten(logits, targets, log_sums, smoothing, factor);
  return with_type_of(logits, [&](auto number) {
    return gradient_on_cpu<decltype(number)>(logits, targets, log_sums, smoothing, factor.item<float>());
  });
}

class CrossEntropyFunction : public torch::autograd::Function<CrossEntropyFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits, const at::Tensor& targets,
                            double smoothing) {
    OwnOperator call("sluice::cross_entropy", {logits, targets});
    const RowLosses rows = losses_of(logits, targets, smoothing);
    at::Tensor loss = rows.losses.sum();
    call.made({loss});
    ctx->save_for_backward({logits, targets, rows.log_sums});
    ctx->saved_data["smoothing"] = smoothing;
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const double smoothing = ctx->saved_data["smoothing"].toDouble();
    OwnOperator call("sluice::cross_entropy_backward", {grads[0], saved[0], saved[1]});
    const at::Tensor grad = gradient_of(saved[0], saved[1], saved[2], smoothing, grads[0]);
    call.made({grad});
    return {grad, {}, {}};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, double label_smoothing) {
  const at::Tensor rows = logits.flatten(0, -2);
  const bool is_small = rows.numel() <= kSliceValues && !suits_kernels(rows) && !gpu::suits(rows);
  if (targets.is_floating_point() || rows.numel() == 0 || is_small) {
    return at::cross_entropy_loss(in_float(rows), targets.is_floating_point() ? targets : targets.flatten(), {},
                                  at::Reduction::Sum, kNoTarget, label_smoothing);
  }
  check(targets.numel() == rows.size(0), "a target for each row of logits");
  return CrossEntropyFunction::apply(rows.contiguous(), targets.flatten().contiguous(), label_smoothing);
}

at::Tensor rows_with_targets(const at::Tensor& targets) {
  const at::Tensor rows = at::nonzero(targets.flatten().ne(kNoTarget)).squeeze(1);
  return rows.numel() > 0 ? rows : at::zeros({1}, rows.options());
}

}  // namespace sluice::nn
