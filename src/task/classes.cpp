#include "task/classes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/ATen.h>

#include "core/check.h"
#include "nn/bfloat16.h"

namespace sluice::task {
namespace {

// Numbers of top-1 and top-5 hits.
using Counts = std::array<std::int64_t, 2>;

template <typename Real>
Counts count_rows(const at::Tensor& logits, const at::Tensor& targets) {
  const std::int64_t classes = logits.size(1);
  const auto* row = logits.const_data_ptr<Real>();
  const auto* target = targets.const_data_ptr<std::int64_t>();
  Counts counts{};
  for (std::int64_t i = 0; i < logits.size(0); ++i, row += classes) {
    if (target[i] == kNoTarget) continue;
    check(target[i] >= 0 && target[i] < classes, "a target below the number of classes");
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

// [n, classes + 1]: each row of logits, followed by its target.
at::Tensor logits_to_count(const at::Tensor& rows, const at::Tensor& targets) {
  return at::cat({rows.to(at::kDouble), targets.to(at::kDouble).unsqueeze(1)}, 1);
}

at::Tensor as_tensor(const Counts& counts) { return at::tensor({counts[0], counts[1]}, at::kLong); }

at::Tensor count_on_gpu(const at::Tensor& rows, const at::Tensor& targets) {
  if (rows.numel() <= kFewLogits) return logits_to_count(rows, targets);
  const at::Tensor counts = targets.ne(kNoTarget), column = targets.masked_fill(counts.logical_not(), 0).unsqueeze(1);
  const at::Tensor own = rows.gather(1, column);
  const at::Tensor classes = at::arange(rows.size(1), column.options());
  const at::Tensor ahead = rows.gt(own).logical_or(rows.eq(own).logical_and(classes.lt(column)));
  const at::Tensor rank = ahead.sum(1).masked_fill(own.squeeze(1).isnan(), std::max<std::int64_t>(rows.size(1), 5));
  const auto number_of = [&](const at::Tensor& mask) { return mask.logical_and(counts).sum(); };
  return at::stack({number_of(rank.eq(0)), number_of(rank.lt(5))});
}

Score perplexity() {
  return {.name = "perplexity",
          .title = "perplexity",
          .tag = "perplexity",
          .of = [](const ScoreSums& all) { return std::exp(all.loss()); },
          .is_percent = false,
          .higher_is_better = false,
          .needs = 0};
}

class Classes final : public Task {
 public:
  explicit Classes(const ClassesOptions& options) : inputs_(options.inputs), label_smoothing_(options.label_smoothing) {
    if (options.has_perplexity) scores_.push_back(perplexity());
    scores_.push_back(share_of_targets("top1", "top-1", "acc1", 0));
    if (options.has_top5) scores_.push_back(share_of_targets("top5", "top-5", "acc5", 1));
  }

  [[nodiscard]] const std::vector<std::string>& inputs() const override { return inputs_; }
  [[nodiscard]] const std::vector<std::string>& targets() const override { return targets_; }
  [[nodiscard]] const Scores& scores() const override { return scores_; }

  [[nodiscard]] at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return nn::cross_entropy_sum(outputs[0], targets[0], label_smoothing_);
  }

  [[nodiscard]] std::int64_t count_targets(const Tensors& targets) const override {
    if (are_shares(targets[0])) return targets[0].size(0);
    return targets[0].ne(kNoTarget).sum().item<std::int64_t>();
  }

  [[nodiscard]] at::Tensor count(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor rows = nn::in_float(outputs[0]).flatten(0, -2);
    const at::Tensor all = classes_of(targets[0].to(rows.device())).flatten();
    const bool is_plain = rows.scalar_type() == at::kFloat || rows.scalar_type() == at::kDouble;
    if (rows.is_cpu() && is_plain) return as_tensor(count_on_cpu(rows.contiguous(), all.contiguous()));
    return count_on_gpu(rows, all);
  }

  [[nodiscard]] std::vector<double> sums_of(const at::Tensor& counted) const override {
    at::Tensor counts = counted.cpu();
    if (counts.dim() == 2) {
      const std::int64_t classes = counts.size(1) - 1;
      const at::Tensor rows = counts.narrow(1, 0, classes).contiguous();
      counts = as_tensor(count_on_cpu(rows, counts.select(1, classes).to(at::kLong)));
    }
    return {counts[0].item<double>(), counts[1].item<double>()};
  }

 protected:
  [[nodiscard]] std::size_t number_of_sums() const override { return 2; }

 private:
  const std::vector<std::string> inputs_, targets_{"targets"};
  double label_smoothing_;
  Scores scores_;
};

}  // namespace

TaskPtr make_classes(const ClassesOptions& options) { return std::make_shared<Classes>(options); }

Score share_of_targets(const char* name, const char* title, const char* tag, std::size_t sum) {
  return {.name = name,
          .title = title,
          .tag = tag,
          .of = [sum](const ScoreSums& all) { return all.percent(sum); },
          .needs = sum + 1};
}

TaskPtr make_classification(double label_smoothing) { return make_classes({.label_smoothing = label_smoothing}); }

TaskPtr make_language_model(double label_smoothing) {
  return make_classes({.label_smoothing = label_smoothing, .has_perplexity = label_smoothing == 0});
}

}  // namespace sluice::task
