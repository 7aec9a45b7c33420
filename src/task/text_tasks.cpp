#include "task/text_tasks.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"
#include "nn/bfloat16.h"
#include "task/classes.h"
#include "task/entities.h"

namespace sluice::task {
namespace {

double ratio_or_zero(double part, double whole) { return whole > 0 ? part / whole : 0; }

// By the sums of what is right, predicted and actual.
Score f1_of(std::size_t right, std::size_t predicted, std::size_t actual) {
  const auto percent = [=](const ScoreSums& all) {
    return 200 * ratio_or_zero(all.sums[right], all.sums[predicted] + all.sums[actual]);
  };
  return {.name = "f1", .title = "F1", .tag = "f1", .of = percent};
}

Score correlation(const char* name, const char* title, double (*of)(const ScoreSums&)) {
  return {.name = name, .title = title, .tag = name, .of = of, .is_percent = false};
}

class TextTask : public Task {
 public:
  TextTask(std::vector<std::string> targets, Scores scores, std::size_t sums)
      : targets_(std::move(targets)), scores_(std::move(scores)), sums_(sums) {}

  [[nodiscard]] const std::vector<std::string>& inputs() const override { return text_inputs(); }
  [[nodiscard]] const std::vector<std::string>& targets() const override { return targets_; }
  [[nodiscard]] const Scores& scores() const override { return scores_; }

  [[nodiscard]] std::vector<double> sums_of(const at::Tensor& counted) const override {
    const at::Tensor sums = counted.cpu().to(at::kDouble).contiguous();
    return {sums.const_data_ptr<double>(), sums.const_data_ptr<double>() + sums.numel()};
  }

 protected:
  [[nodiscard]] std::size_t number_of_sums() const override { return sums_; }

 private:
  const std::vector<std::string> targets_;
  const Scores scores_;
  const std::size_t sums_;
};

class ClassesOfText : public TextTask {
 public:
  ClassesOfText(Scores scores, std::size_t sums, double label_smoothing)
      : TextTask({"targets"}, std::move(scores), sums), classes_(make_classification(label_smoothing)) {}

  [[nodiscard]] at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return classes_->loss(outputs, targets);
  }
  [[nodiscard]] std::int64_t count_targets(const Tensors& targets) const override {
    return classes_->count_targets(targets);
  }

 private:
  const TaskPtr classes_;
};

// Sums: hits, right ones of class 1, predictions of class 1, targets of class 1.
class TwoClasses final : public ClassesOfText {
 public:
  explicit TwoClasses(double label_smoothing)
      : ClassesOfText(
            {share_of_targets("top1", "top-1", "acc1", 0), f1_of(1, 2, 3), correlation("mcc", "MCC", matthews)}, 4,
            label_smoothing) {}

  [[nodiscard]] at::Tensor count(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor& logits = outputs[0];
    const at::Tensor counts = targets[0].ne(kNoTarget), actual = targets[0].eq(1);
    const at::Tensor predicted = logits.select(1, 1).gt(logits.select(1, 0)).logical_and_(counts);
    const at::Tensor is_number = logits.isnan().any(1).logical_not();
    const at::Tensor hits = predicted.eq(actual).logical_and_(counts).logical_and_(is_number);
    return at::stack({hits.sum(), predicted.logical_and(actual).sum(), predicted.sum(), actual.sum()});
  }

 private:
  static double matthews(const ScoreSums& all) {
    const auto n = static_cast<double>(all.targets);
    const double right = all.sums[1], predicted = all.sums[2], actual = all.sums[3];
    return ratio_or_zero(n * right - predicted * actual,
                         std::sqrt(predicted * (n - predicted)) * std::sqrt(actual * (n - actual)));
  }
};

// Sums over outputs x and targets y: x, y, x^2, y^2, xy.
class Regression final : public TextTask {
 public:
  Regression() : TextTask({"targets"}, {correlation("pearson", "Pearson", pearson)}, 5) {}

  [[nodiscard]] at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor values = nn::in_float(outputs[0]);
    return at::mse_loss(values.flatten(), targets[0].to(values.scalar_type()).flatten(), at::Reduction::Sum);
  }
  [[nodiscard]] std::int64_t count_targets(const Tensors& targets) const override { return targets[0].numel(); }
  [[nodiscard]] at::Tensor count(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor x = outputs[0].flatten().to(at::kDouble), y = targets[0].flatten().to(at::kDouble);
    return at::stack({x.sum(), y.sum(), x.dot(x), y.dot(y), x.dot(y)});
  }

 private:
  static double pearson(const ScoreSums& all) {
    const auto n = static_cast<double>(all.targets);
    const double x = all.sums[0], y = all.sums[1];
    const auto spread = [n](double sum, double squares) {
      const double square = n * squares - sum * sum;
      return square > 1e-12 * n * squares ? std::sqrt(square) : 0;  // less may be rounding alone
    };
    return ratio_or_zero(n * all.sums[4] - x * y, spread(x, all.sums[2]) * spread(y, all.sums[3]));
  }
};

// Sums: right labels, right entities, predicted entities, actual entities.
class TokenLabels final : public ClassesOfText {
 public:
  TokenLabels(Scores scores, std::vector<EntityLabel> labels)
      : ClassesOfText(std::move(scores), 4, /*label_smoothing=*/0), labels_(std::move(labels)) {}

  // [2, n, T]: the first label with the largest logit (the number of labels if one is NaN), and the
  // targets.
  [[nodiscard]] at::Tensor count(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor& logits = outputs[0];
    const at::Tensor is_largest = logits.eq(logits.amax(-1, /*keepdim=*/true));
    const at::Tensor labels = at::arange(logits.size(-1), targets[0].options());
    const at::Tensor none = at::full({}, logits.size(-1), targets[0].options());
    return at::stack({at::where(is_largest, labels, none).amin(-1), targets[0]});
  }

  [[nodiscard]] std::vector<double> sums_of(const at::Tensor& counted) const override {
    std::vector<double> sums(number_of_sums());
    const at::Tensor all = counted.cpu().contiguous();
    const auto length = static_cast<std::size_t>(all.size(2));
    const auto* predicted = all.const_data_ptr<std::int64_t>();
    const auto* actual = predicted + all[0].numel();
    for (std::int64_t row = 0; row < all.size(1); ++row, predicted += length, actual += length)
      add_row({predicted, length}, {actual, length}, sums);
    return sums;
  }

 private:
  void add_row(std::span<const std::int64_t> predicted, std::span<const std::int64_t> actual,
               std::vector<double>& sums) const {
    std::vector<EntityLabel> found, wanted;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (actual[i] == kNoTarget) continue;
      check(actual[i] >= 0 && actual[i] < std::ssize(labels_), "a target below the number of labels");
      sums[0] += predicted[i] == actual[i] ? 1 : 0;
      found.push_back(predicted[i] < std::ssize(labels_) ? labels_[predicted[i]] : EntityLabel{});
      wanted.push_back(labels_[actual[i]]);
    }
    const EntityCounts counts = compare_entities(found, wanted);
    sums[1] += static_cast<double>(counts.right);
    sums[2] += static_cast<double>(counts.found);
    sums[3] += static_cast<double>(counts.wanted);
  }

  const std::vector<EntityLabel> labels_;
};

// Sums: overlaps, windows with both ends right, windows with both targets. Evaluations add F1, exact matches,
// questions.
class QuestionAnswering final : public TextTask {
 public:
  QuestionAnswering()
      : TextTask({"starts", "ends"},
                 {share_of("f1", "F1", 3, 5), share_of("exact_match", "exact match", 4, 5),
                  share_of("span_f1", "span F1", 0, 2), share_of("span", "span", 1, 2)},
                 3) {}

  [[nodiscard]] at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor logits = nn::in_float(outputs[0]);
    const auto loss_of = [&](std::int64_t which) {
      return at::cross_entropy_loss(logits.select(2, which), targets[which], {}, at::Reduction::Sum, kNoTarget);
    };
    return loss_of(0) + loss_of(1);
  }
  [[nodiscard]] std::int64_t count_targets(const Tensors& targets) const override {
    return (targets[0].ne(kNoTarget).sum() + targets[1].ne(kNoTarget).sum()).item<std::int64_t>();
  }
  [[nodiscard]] at::Tensor count(const Tensors& outputs, const Tensors& targets) const override {
    const at::Tensor &starts = targets[0], &ends = targets[1];
    const at::Tensor counts = starts.ne(kNoTarget).logical_and_(ends.ne(kNoTarget));
    const at::Tensor best = outputs[0].argmax(1);  // [n, 2]
    const at::Tensor first = best.select(1, 0), last = best.select(1, 1);
    const auto tokens = [](const at::Tensor& from, const at::Tensor& to) { return (to - from + 1).clamp_min(0); };
    const at::Tensor shared = tokens(at::maximum(first, starts), at::minimum(last, ends)).to(at::kDouble);
    const at::Tensor f1 = shared * 2 / (tokens(first, last) + tokens(starts, ends)).clamp_min(1);
    const at::Tensor is_right = first.eq(starts).logical_and_(last.eq(ends)).logical_and_(counts);
    return at::stack(
        {f1.masked_fill(counts.logical_not(), 0).sum(), is_right.sum().to(at::kDouble), counts.sum().to(at::kDouble)});
  }

 private:
  static Score share_of(const char* name, const char* title, std::size_t part, std::size_t whole) {
    const auto percent = [=](const ScoreSums& all) { return 100 * ratio_or_zero(all.sums[part], all.sums[whole]); };
    return {.name = name, .title = title, .tag = name, .of = percent, .needs = whole + 1};
  }
};

}  // namespace

const std::vector<std::string>& text_inputs() {
  static const std::vector<std::string> names{"inputs", "mask", "types", "positions"};
  return names;
}

TaskPtr make_sequence_classification(std::int64_t classes, double label_smoothing) {
  check(classes > 1, "at least two classes");
  if (classes == 2) return std::make_shared<TwoClasses>(label_smoothing);
  return make_classes({.label_smoothing = label_smoothing, .inputs = text_inputs(), .has_top5 = false});
}

TaskPtr make_regression() { return std::make_shared<Regression>(); }

TaskPtr make_token_classification(const std::vector<std::string>& names) {
  std::vector<EntityLabel> labels = entity_labels(names);
  Scores scores;
  if (std::ranges::any_of(labels, &EntityLabel::begins)) scores.push_back(f1_of(1, 2, 3));
  scores.push_back(share_of_targets("top1", "top-1", "acc1", 0));
  return std::make_shared<TokenLabels>(std::move(scores), std::move(labels));
}

TaskPtr make_question_answering() { return std::make_shared<QuestionAnswering>(); }

TaskPtr make_text_language_model(double label_smoothing) {
  return make_classes({.label_smoothing = label_smoothing, .inputs = text_inputs(), .predicts_tokens = true});
}

}  // namespace sluice::task
