#include "task/classes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <type_traits>

#include <ATen/ATen.h>

#include "core/check.h"
#include "nn/bfloat16.h"
#include "nn/cuda/operations.h"
#include "nn/parallel.h"

namespace sluice::task {
namespace {

// Numbers of top-1 and top-5 hits.
using Counts = std::array<std::int64_t, 2>;

constexpr std::int64_t kMostHits = 5;

// Number of logits that rank before the target's, of equal ones those of lower classes; stops early at kMostHits.
template <typename Real>
std::int64_t rank_of(const Real* row, std::int64_t classes, std::int64_t target) {
  constexpr std::int64_t kPiece = 1024;
  const auto widened = [](Real value) {  // bfloat16 is compared as float
    return static_cast<std::conditional_t<sizeof(Real) == 8, double, float>>(value);
  };
  const auto own = widened(row[target]);
  std::int64_t ahead = 0;
  for (std::int64_t begin = 0; begin < classes && ahead < kMostHits; begin += kPiece) {
    const std::int64_t end = std::min(begin + kPiece, classes), border = std::clamp(target, begin, end);
    std::int32_t in_piece = 0;
    for (std::int64_t c = begin; c < border; ++c) in_piece += widened(row[c]) >= own ? 1 : 0;
    for (std::int64_t c = std::max(border, target + 1); c < end; ++c) in_piece += widened(row[c]) > own ? 1 : 0;
    ahead += in_piece;
  }
  return ahead;
}

template <typename Real>
Counts count_rows(const at::Tensor& logits, const at::Tensor& targets) {
  const std::int64_t classes = logits.size(1);
  const auto* first = logits.const_data_ptr<Real>();
  const auto* target = targets.const_data_ptr<std::int64_t>();
  std::atomic<std::int64_t> top1 = 0, top5 = 0;
  nn::parallel_for(0, logits.size(0), nn::kPieceValues / classes + 1, [&](std::int64_t begin, std::int64_t end) {
    Counts counts{};
    for (std::int64_t i = begin; i < end; ++i) {
      if (target[i] == kNoTarget) continue;
      check(target[i] >= 0 && target[i] < classes, "a target below the number of classes");
      const Real* const row = first + i * classes;
      if (std::isnan(row[target[i]])) continue;  // comparisons with NaN are false, so it would look like the largest
      const std::int64_t ahead = rank_of(row, classes, target[i]);
      counts[0] += ahead < 1 ? 1 : 0;
      counts[1] += ahead < kMostHits ? 1 : 0;
    }
    top1 += counts[0];
    top5 += counts[1];
  });
  return {top1, top5};
}

bool can_count_on_cpu(const at::Tensor& logits) {
  const at::ScalarType type = logits.scalar_type();
  return logits.is_cpu() && (type == at::kFloat || type == at::kDouble || type == at::kBFloat16);
}

Counts count_on_cpu(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.scalar_type() == at::kDouble) return count_rows<double>(logits, targets);
  if (logits.scalar_type() == at::kBFloat16) return count_rows<at::BFloat16>(logits, targets);
  return count_rows<float>(logits, targets);
}

// Targets of the rows that have logits; a head may leave out the others (nn::ForwardContext::targets).
at::Tensor targets_of(const at::Tensor& logits, const at::Tensor& targets) {
  const bool has_all = targets.is_floating_point() || logits.dim() == targets.dim() + 1;
  return has_all ? targets : targets.flatten().index_select(0, nn::rows_with_targets(targets));
}

bool are_shares(const at::Tensor& targets) { return targets.is_floating_point(); }

at::Tensor classes_of(const at::Tensor& targets) { return are_shares(targets) ? targets.argmax(1) : targets; }

at::Tensor as_tensor(const Counts& counts) { return at::tensor({counts[0], counts[1]}, at::kLong); }

at::Tensor count_by_aten(const at::Tensor& rows, const at::Tensor& targets) {
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
  explicit Classes(const ClassesOptions& options)
      : inputs_(options.inputs), label_smoothing_(options.label_smoothing), predicts_tokens_(options.predicts_tokens) {
    if (predicts_tokens_ && label_smoothing_ == 0) scores_.push_back(perplexity());
    scores_.push_back(share_of_targets("top1", "top-1", "acc1", 0));
    if (options.has_top5) scores_.push_back(share_of_targets("top5", "top-5", "acc5", 1));
  }

  [[nodiscard]] const std::vector<std::string>& inputs() const override { return inputs_; }
  [[nodiscard]] const std::vector<std::string>& targets() const override { return targets_; }
  [[nodiscard]] const Scores& scores() const override { return scores_; }

  [[nodiscard]] at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return nn::cross_entropy_sum(outputs[0], targets_of(outputs[0], targets[0]), label_smoothing_);
  }

  [[nodiscard]] std::int64_t count_targets(const Tensors& targets) const override {
    if (are_shares(targets[0])) return targets[0].size(0);
    return targets[0].ne(kNoTarget).sum().item<std::int64_t>();
  }

  [[nodiscard]] at::Tensor count(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor rows = outputs[0].flatten(0, -2);
    const at::Tensor all = classes_of(targets_of(outputs[0], targets[0]).to(rows.device())).flatten();
    if (can_count_on_cpu(rows)) return as_tensor(count_on_cpu(rows.contiguous(), all.contiguous()));
    if (nn::gpu::suits(rows)) return nn::gpu::count_hits(rows.contiguous(), all.contiguous());
    return count_by_aten(nn::in_float(rows), all);
  }

  [[nodiscard]] bool counts_every_step() const override { return !predicts_tokens_; }
  [[nodiscard]] std::vector<double> sums_of(const at::Tensor& counted) const override {
    const at::Tensor counts = counted.cpu();
    return {counts[0].item<double>(), counts[1].item<double>()};
  }

 protected:
  [[nodiscard]] std::size_t number_of_sums() const override { return 2; }

 private:
  const std::vector<std::string> inputs_, targets_{"targets"};
  double label_smoothing_;
  bool predicts_tokens_;
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
  return make_classes({.label_smoothing = label_smoothing, .predicts_tokens = true});
}

}  // namespace sluice::task
