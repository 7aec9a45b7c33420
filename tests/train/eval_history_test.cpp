// What follows from a series of evaluations, beside the same found by looking at all of them at once.
#include "train/setup/eval_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "task/task.h"

namespace sluice::train {
namespace {

const Scores kScores = task::make_classification()->scores();

ScoreSums sums_of(double top1, double loss) {
  constexpr std::int64_t kTargets = 200;
  return {.loss_sum = loss * kTargets, .targets = kTargets, .sums = {top1, kTargets}};
}

// Few different values, so that evaluations are often equal.
std::vector<ScoreSums> random_series(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> value(0, 12);
  std::vector<ScoreSums> series;
  for (int i = 0; i < 40; ++i) series.push_back(sums_of(value(random), 1 + 0.1 * value(random)));
  return series;
}

TEST(EvalHistory, TheBestIsTheFirstOfTheLargestOrTheSmallest) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    for (const std::string by : {"top1", "loss"}) {
      const config::TrainConfig train{.best_by = by, .stop_patience = 5};
      const auto series = random_series(seed);
      EvalHistory history;
      for (std::size_t count = 1; count <= series.size(); ++count) {
        add(history, series[count - 1], static_cast<std::int64_t>(10 * count), train, kScores);
        const auto end = series.begin() + static_cast<std::ptrdiff_t>(count);
        const auto best =
            by == "loss"
                ? std::min_element(series.begin(), end, [](auto& a, auto& b) { return a.loss() < b.loss(); })
                : std::max_element(series.begin(), end, [](auto& a, auto& b) { return a.sums[0] < b.sums[0]; });
        const auto position = best - series.begin();
        ASSERT_EQ(history.best_step, 10 * (position + 1)) << "seed " << seed << " by " << by << " count " << count;
        ASSERT_EQ(history.since_best, static_cast<int>(count) - 1 - position);
        ASSERT_EQ(ends_early(history, train), history.since_best >= 5);
      }
      ASSERT_EQ(EvalHistory::from_json(history.to_json()), history);
    }
  }
}

TEST(EvalHistory, WithoutPatienceNothingEndsEarly) {
  const config::TrainConfig train;
  EvalHistory history;
  ASSERT_EQ(EvalHistory::from_json(history.to_json()), history);
  for (int i = 0; i < 1000; ++i) add(history, sums_of(1, 1), i, train, kScores);
  EXPECT_FALSE(ends_early(history, train));
}

}  // namespace
}  // namespace sluice::train
