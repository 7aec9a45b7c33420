#include "task/text_tasks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <tuple>

#include "core/error.h"
#include "task/entities.h"

namespace sluice::task {
namespace {

using testing::ElementsAre;

std::vector<double> sums_of(const TaskPtr& task, const Tensors& outputs, const Tensors& targets) {
  return task->sums_of(task->count(outputs, targets));
}

ScoreSums scores_of(const TaskPtr& task, const Tensors& outputs, const Tensors& targets) {
  return {.loss_sum = task->loss(outputs, targets).item<double>(),
          .targets = task->count_targets(targets),
          .sums = sums_of(task, outputs, targets)};
}

std::vector<std::string> names_of(const TaskPtr& task) {
  std::vector<std::string> names;
  for (const Score& score : task->scores()) names.push_back(score.name);
  return names;
}

double score(const TaskPtr& task, const std::string& name, const ScoreSums& sums) {
  return std::ranges::find(task->scores(), name, &Score::name)->of(sums);
}

// Loss and gradient equal PyTorch's mean, times the number of targets.
void expect_mean(const TaskPtr& task, at::Tensor outputs, const Tensors& targets,
                 const std::function<at::Tensor(const at::Tensor&)>& mean) {
  outputs.requires_grad_();
  const at::Tensor loss = task->loss({outputs}, targets) / static_cast<double>(task->count_targets(targets));
  loss.backward();
  const at::Tensor ours = outputs.grad().clone();
  outputs.mutable_grad() = at::Tensor();
  const at::Tensor wanted = mean(outputs);
  wanted.backward();
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-13);
  EXPECT_LT((ours - outputs.grad()).abs().max().item<double>(), 1e-15);
}

// Sums of parts of the samples add up to those of all.
void expect_parts_add_up(const TaskPtr& task, const at::Tensor& outputs, const Tensors& targets) {
  ScoreSums parts{.sums = task->no_sums()};
  std::int64_t begin = 0;
  for (const std::int64_t count : {3L, 1L, outputs.size(0) - 4}) {
    Tensors own;
    for (const at::Tensor& target : targets) own.push_back(target.narrow(0, begin, count));
    parts += scores_of(task, {outputs.narrow(0, begin, count)}, own);
    begin += count;
  }
  const ScoreSums all = scores_of(task, {outputs}, targets);
  EXPECT_NEAR(parts.loss_sum, all.loss_sum, 1e-12 * std::abs(all.loss_sum));
  EXPECT_EQ(parts.targets, all.targets);
  ASSERT_EQ(parts.sums.size(), all.sums.size());
  for (std::size_t i = 0; i < all.sums.size(); ++i)
    EXPECT_NEAR(parts.sums[i], all.sums[i], 1e-12 * std::abs(all.sums[i]));
}

at::Tensor random_like(at::IntArrayRef sizes, std::int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  return at::randn(sizes, generator, at::TensorOptions(at::kDouble));
}

at::Tensor random_classes(at::IntArrayRef sizes, std::int64_t classes, std::int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  return at::randint(classes, sizes, generator, at::TensorOptions(at::kLong));
}

TEST(SequenceClassification, OfTwoClassesHasTheScoresOfScikitLearn) {
  const TaskPtr task = make_sequence_classification(2);
  EXPECT_THAT(task->inputs(), ElementsAre("inputs", "mask", "types", "positions"));
  EXPECT_THAT(names_of(task), ElementsAre("top1", "f1", "mcc"));
  for (int seed = 0; seed < 20; ++seed) {
    const at::Tensor logits = random_like({50, 2}, seed), targets = random_classes({50}, 2, seed + 100);
    const at::Tensor guess = logits.argmax(1);
    const auto cell = [&](int predicted, int actual) {
      return guess.eq(predicted).logical_and(targets.eq(actual)).sum().item<double>();
    };
    const double tp = cell(1, 1), fp = cell(1, 0), fn = cell(0, 1), tn = cell(0, 0);
    const ScoreSums sums = scores_of(task, {logits}, {targets});
    EXPECT_NEAR(score(task, "top1", sums), 100 * (tp + tn) / 50, 1e-12);
    EXPECT_NEAR(score(task, "f1", sums), 100 * 2 * tp / (2 * tp + fp + fn), 1e-12);
    EXPECT_NEAR(score(task, "mcc", sums),
                (tp * tn - fp * fn) / std::sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)), 1e-12);
    expect_parts_add_up(task, logits, {targets});
    expect_mean(task, logits, {targets}, [&](const at::Tensor& x) { return at::cross_entropy_loss(x, targets); });
  }
}

TEST(SequenceClassification, OfOneClassAloneIsZeroWhereScikitLearnSaysZero) {
  const TaskPtr task = make_sequence_classification(2);
  const at::Tensor logits = at::tensor(std::vector<double>{1, 0}).expand({4, 2});  // always class 0
  const ScoreSums sums = scores_of(task, {logits}, {at::zeros({4}, at::kLong)});
  EXPECT_EQ(score(task, "top1", sums), 100);
  EXPECT_EQ(score(task, "f1", sums), 0);
  EXPECT_EQ(score(task, "mcc", sums), 0);
}

TEST(SequenceClassification, EqualLogitsMeanTheFirstClassAndNaNIsNeverRight) {
  const TaskPtr task = make_sequence_classification(2);
  const at::Tensor targets = at::tensor({0, 1}, at::kLong);
  EXPECT_THAT(sums_of(task, {at::zeros({2, 2})}, {targets}), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(sums_of(task, {at::full({2, 2}, std::nan(""))}, {targets}), ElementsAre(0, 0, 0, 1));
}

TEST(SequenceClassification, OfMoreClassesCountsTheLargestLogit) {
  const TaskPtr task = make_sequence_classification(5, 0.1);
  EXPECT_THAT(names_of(task), ElementsAre("top1"));
  EXPECT_THAT(task->inputs(), ElementsAre("inputs", "mask", "types", "positions"));
  const at::Tensor logits = random_like({30, 5}, 1), targets = random_classes({30}, 5, 2);
  EXPECT_NEAR(score(task, "top1", scores_of(task, {logits}, {targets})),
              logits.argmax(1).eq(targets).to(at::kDouble).mean().item<double>() * 100, 1e-12);
  expect_mean(task, logits, {targets}, [&](const at::Tensor& x) {
    return at::cross_entropy_loss(x, targets, {}, at::Reduction::Mean, -100, 0.1);
  });
}

TEST(Regression, HasTheMeanSquaredErrorAndPearsonsCorrelation) {
  const TaskPtr task = make_regression();
  for (int seed = 0; seed < 20; ++seed) {
    const at::Tensor x = random_like({40, 1}, seed), y = x.squeeze(1) * (seed - 10) + random_like({40}, seed + 50) + 3;
    const at::Tensor of_x = x.squeeze(1) - x.mean(), of_y = y - y.mean();
    const double pearson = (of_x.dot(of_y) / (of_x.norm() * of_y.norm())).item<double>();
    EXPECT_NEAR(score(task, "pearson", scores_of(task, {x}, {y})), pearson, 1e-12);
    expect_parts_add_up(task, x, {y});
    expect_mean(task, x, {y}, [&](const at::Tensor& values) { return at::mse_loss(values.squeeze(1), y); });
  }
}

TEST(Regression, OfAConstantHasNoCorrelation) {
  const TaskPtr task = make_regression();
  const at::Tensor y = random_like({40}, 3), x = at::full({40, 1}, 0.1, at::kDouble);
  EXPECT_EQ(score(task, "pearson", scores_of(task, {x}, {y})), 0);
  EXPECT_EQ(score(task, "pearson", scores_of(task, {y.unsqueeze(1)}, {x.squeeze(1)})), 0);
  const at::Tensor narrow = x.narrow(0, 0, 2).to(at::kFloat);
  EXPECT_EQ(task->loss({narrow.to(at::kBFloat16)}, {narrow.squeeze(1)}).scalar_type(), at::kFloat);
}

// seqeval's get_entities(), with a label O between sequences.
using Found = std::set<std::tuple<std::string, int, int, int>>;
bool is_one_of(std::string_view tags, char tag) { return tags.find(tag) != std::string_view::npos; }
Found entities_by_seqeval(const std::vector<std::vector<std::string>>& rows) {
  Found found;
  for (int row = 0; row < static_cast<int>(rows.size()); ++row) {
    std::vector<std::string> labels = rows[row];
    labels.emplace_back("O");
    char last_tag = 'O';
    std::string last_type;
    int begin = 0;
    for (int i = 0; i < static_cast<int>(labels.size()); ++i) {
      const char tag = labels[i][0];
      const std::string type = labels[i].substr(labels[i].find('-') + 1);
      const bool is_apart = is_one_of("ES", last_tag) || last_type != type;
      if (last_tag != 'O' && (is_apart || is_one_of("BSO", tag))) found.emplace(last_type, row, begin, i - 1);
      if (is_one_of("BS", tag) || (tag != 'O' && (is_apart || last_tag == 'O'))) begin = i;
      last_tag = tag, last_type = type;
    }
  }
  return found;
}

TEST(TokenClassification, CountsEntitiesAsSeqevalDoes) {
  const std::vector<std::string> names{"O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC", "S-PER"};
  const std::int64_t classes = std::ssize(names);
  const TaskPtr task = make_token_classification(names);
  EXPECT_THAT(names_of(task), ElementsAre("f1", "top1"));
  std::int64_t right = 0;
  for (int seed = 0; seed < 60; ++seed) {
    at::Tensor logits = random_like({6, 9, classes}, seed);
    const at::Tensor real = random_classes({6, 9}, classes, seed + 100);
    logits = logits + at::one_hot(real, classes) * 2;
    const at::Tensor hidden = random_classes({6, 9}, 4, seed + 200).eq(0);
    const at::Tensor targets = real.masked_fill(hidden, kNoTarget), guess = logits.argmax(2);
    std::vector<std::vector<std::string>> found(6), wanted(6);
    for (int row = 0; row < 6; ++row) {
      for (int i = 0; i < 9; ++i) {
        if (hidden[row][i].item<bool>()) continue;
        found[row].push_back(names[guess[row][i].item<std::int64_t>()]);
        wanted[row].push_back(names[real[row][i].item<std::int64_t>()]);
      }
    }
    const Found by_us = entities_by_seqeval(found), by_them = entities_by_seqeval(wanted);
    double both = 0;
    for (const auto& entity : by_us) both += static_cast<double>(by_them.count(entity));
    const ScoreSums sums = scores_of(task, {logits}, {targets});
    const double hits = guess.eq(targets).sum().item<double>();
    EXPECT_THAT(sums.sums, ElementsAre(hits, both, by_us.size(), by_them.size()));
    EXPECT_NEAR(score(task, "f1", sums), 200 * both / static_cast<double>(by_us.size() + by_them.size()), 1e-12);
    EXPECT_NEAR(score(task, "top1", sums), 100 * hits / static_cast<double>(sums.targets), 1e-12);
    expect_parts_add_up(task, logits, {targets});
    expect_mean(task, logits, {targets},
                [&](const at::Tensor& x) { return at::cross_entropy_loss(x.flatten(0, 1), targets.flatten()); });
    right += static_cast<std::int64_t>(both);
  }
  EXPECT_GT(right, 100) << "the comparison saw right entities";
}

TEST(TokenClassification, OfOtherLabelsHasNoEntities) {
  EXPECT_THAT(names_of(make_token_classification({"NOUN", "VERB"})), ElementsAre("top1"));
  const TaskPtr task = make_token_classification({"O", "B-X"});
  EXPECT_THAT(sums_of(task, {at::full({1, 2, 2}, std::nan(""))}, {at::tensor({0, 1}, at::kLong).view({1, 2})}),
              ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(sums_of(task, {at::zeros({1, 2, 2})}, {at::tensor({0, 1}, at::kLong).view({1, 2})}),
              ElementsAre(1, 0, 0, 1))
      << "equal logits mean the first label";
  EXPECT_THROW(sums_of(task, {at::zeros({1, 1, 2})}, {at::full({1, 1}, 2, at::kLong)}), BugError);
}

// BertForQuestionAnswering of transformers.
at::Tensor mean_by_transformers(const at::Tensor& logits, at::Tensor starts, at::Tensor ends) {
  const std::vector<at::Tensor> both = logits.split(1, -1);
  const std::int64_t ignored = logits.size(1);
  starts = starts.clamp(0, ignored), ends = ends.clamp(0, ignored);
  const at::Tensor start_loss = at::cross_entropy_loss(both[0].squeeze(-1), starts, {}, at::Reduction::Mean, ignored);
  const at::Tensor end_loss = at::cross_entropy_loss(both[1].squeeze(-1), ends, {}, at::Reduction::Mean, ignored);
  return (start_loss + end_loss) / 2;
}

TEST(QuestionAnswering, HasTheLossOfTransformers) {
  const TaskPtr task = make_question_answering();
  EXPECT_THAT(task->targets(), ElementsAre("starts", "ends"));
  for (int seed = 0; seed < 10; ++seed) {
    const at::Tensor logits = random_like({8, 11, 2}, seed);
    const at::Tensor outside = random_classes({8}, 3, seed + 30).eq(0);
    const auto draw = [&](int from, std::int64_t value) {
      return random_classes({8}, 11, seed + from).masked_fill(outside, value);
    };
    expect_mean(task, logits, {draw(10, kNoTarget), draw(20, kNoTarget)},
                [&](const at::Tensor& x) { return mean_by_transformers(x, draw(10, 99), draw(20, 99)); });
    expect_parts_add_up(task, logits, {draw(10, kNoTarget), draw(20, kNoTarget)});
  }
}

TEST(QuestionAnswering, ScoresTheOverlapOfTheSpans) {
  const TaskPtr task = make_question_answering();
  const auto score_span = [&](std::int64_t first, std::int64_t last) {
    const at::Tensor best = at::tensor({first, last}, at::kLong);
    const at::Tensor logits = at::one_hot(best, 10).to(at::kDouble).t().unsqueeze(0).contiguous();
    const Tensors answer{at::full({1}, 3, at::kLong), at::full({1}, 6, at::kLong)};
    const ScoreSums sums = scores_of(task, {logits}, answer);
    return std::pair(score(task, "span_f1", sums), score(task, "span", sums));
  };
  using Pair = std::pair<double, double>;
  EXPECT_EQ(score_span(3, 6), Pair(100, 100));
  EXPECT_EQ(score_span(5, 8), Pair(50, 0));
  EXPECT_EQ(score_span(7, 9), Pair(0, 0));
  EXPECT_EQ(score_span(6, 3), Pair(0, 0)) << "an end before its start";
  const at::Tensor none = at::full({1}, kNoTarget, at::kLong);
  EXPECT_THAT(sums_of(task, {at::zeros({1, 10, 2})}, {none, none}), ElementsAre(0, 0, 0));
}

TEST(TextLanguageModel, IsALanguageModelThatTakesMasksTypesAndPositions) {
  const TaskPtr task = make_text_language_model();
  EXPECT_THAT(task->inputs(), ElementsAre("inputs", "mask", "types", "positions"));
  EXPECT_THAT(names_of(task), ElementsAre("perplexity", "top1", "top5"));
  const at::Tensor logits = random_like({5, 6, 7}, 1);
  const at::Tensor targets = random_classes({5, 6}, 7, 2).masked_fill(random_classes({5, 6}, 3, 3).ne(0), kNoTarget);
  expect_mean(task, logits, {targets},
              [&](const at::Tensor& x) { return at::cross_entropy_loss(x.flatten(0, 1), targets.flatten()); });
  expect_parts_add_up(task, logits, {targets});
}

}  // namespace
}  // namespace sluice::task
