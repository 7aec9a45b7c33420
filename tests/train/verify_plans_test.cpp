// Which of the plans that were found run, and how often, by a clock and runs of our own.
#include "train/study/verify_plans.h"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::train {
namespace {

constexpr double kPredicted = 1;  // seconds a step
constexpr int kSteps = Measuring{}.warm_up + Measuring{}.steps;
constexpr double kStart = 2;

// Runs take what they are told to, and as long by the clock.
class VerifyPlans : public testing::Test {
 protected:
  static tune::Candidate candidate(int chunks) {
    tune::Candidate one;
    one.plan = {.partition = {{1}}, .chunks = chunks, .global_batch = 8, .schedule = "gpipe"};
    one.step.seconds = kPredicted;
    return one;
  }
  // Whose threads no profile has to say.
  static config::Config on_gpus() {
    config::Config config;
    config.device.list.choice = "cuda";
    return config;
  }
  PlanRuns runs() {
    return {on_gpus(), profiles_, budget_, [this](const config::Config& of_plan, const Measuring& how) {
              chunks_.push_back(of_plan.pipeline.chunks.value_or(0));
              MeasuredSteps measured{.failure = "not told what to take"};
              if (!takes_.empty()) measured = {.step_s = takes_.front()}, takes_.pop_front();
              const double seconds = kStart + kSteps * measured.step_s;
              if (seconds > how.limit_s) measured = {.failure = "it hangs", .timed_out = true};
              now_ += std::min(seconds, how.limit_s);
              return measured;
            }};
  }
  // Of one plan alone.
  MeasuredSteps measure(std::deque<double> takes, double seconds = 1000) {
    budget_ = budget_of(seconds);
    takes_ = std::move(takes);
    PlanRuns one = runs();
    one.run_best({candidate(1)}, 1);
    left_out_ = one.left_out();
    return one.done().empty() ? MeasuredSteps{.failure = "none"} : one.done().front().measured;
  }
  tune::Budget budget_of(double seconds) {
    tune::Budget budget(seconds / tune::Budget::kUsable, /*may_change_batch=*/false, [this] { return now_; });
    budget.begin(tune::Budget::Part::kRunning);
    return budget;
  }

  double now_ = 0;
  Profiles profiles_{{profiler::LayerProfile{}}};
  tune::Budget budget_ = budget_of(1000);
  std::deque<double> takes_;
  std::vector<int> chunks_;  // of what ran
  std::string left_out_;
};

TEST_F(VerifyPlans, ARunAsPredictedIsNotRunAgain) {
  for (const double takes : {0.7, 1.0, 1.4}) {
    chunks_.clear();
    EXPECT_EQ(measure({takes, 99}).step_s, takes);
    EXPECT_EQ(chunks_.size(), 1U);
  }
}

TEST_F(VerifyPlans, OfTwoRunsFarFromThePredictionTheFasterOneCounts) {
  EXPECT_EQ(measure({3, 1.1}).step_s, 1.1) << "other programs ran";
  EXPECT_EQ(measure({3, 3.5}).step_s, 3);
  EXPECT_EQ(measure({0.5, 0.6}).step_s, 0.5);
  EXPECT_EQ(chunks_.size(), 6U) << "each once more, and no more than that";
}

TEST_F(VerifyPlans, ASecondRunThatFailsLeavesTheFirst) {
  const MeasuredSteps measured = measure({2});  // then it is told nothing
  EXPECT_EQ(measured.step_s, 2);
  EXPECT_EQ(measured.failure, "");
  EXPECT_EQ(chunks_.size(), 2U);
}

TEST_F(VerifyPlans, NothingIsRunAgainForWhichNoTimeIsLeft) {
  const double once = kStart + kSteps * 2;
  EXPECT_EQ(measure({2, 1}, 2 * once - 1).step_s, 2);
  EXPECT_EQ(chunks_.size(), 1U);
  EXPECT_EQ(measure({2, 1}, 2 * once + 1).step_s, 1);
  EXPECT_EQ(chunks_.size(), 3U);
}

TEST_F(VerifyPlans, NoRunIsBegunThatTheBudgetIsNotEnoughFor) {
  EXPECT_EQ(measure({1}, kSteps * kPredicted).failure, "none");
  EXPECT_TRUE(chunks_.empty());
  EXPECT_NE(left_out_.find("plan 1 of 1 was not run: it would take about"), std::string::npos) << left_out_;
}

// It is ended after four times what it would take.
TEST_F(VerifyPlans, APlanThatHangsIsNoneAndTheNextOneRuns) {
  takes_ = {500, 1};
  PlanRuns two = runs();
  two.run_best({candidate(1), candidate(2)}, 2);
  ASSERT_EQ(two.done().size(), 2U);
  EXPECT_EQ(two.done()[0].measured.failure, "it hangs");
  EXPECT_FALSE(two.done()[0].ran());
  EXPECT_EQ(two.done()[1].measured.step_s, 1);
  constexpr double kUnknownStart = 5;  // of a run, where none has told
  EXPECT_DOUBLE_EQ(now_, 4 * (kUnknownStart + kSteps * kPredicted) + kStart + kSteps * 1);
  EXPECT_EQ(chunks_, (std::vector<int>{1, 2}));
}

TEST_F(VerifyPlans, TheConfiguredPlanRunsOnlyWhereItHasNot) {
  takes_ = {1, 1.2};
  PlanRuns one = runs();
  one.run_best({candidate(1)}, 1);
  ConfiguredPlan same{.predicted = candidate(1)}, other{.predicted = candidate(4)}, unknown;
  one.run_configured(on_gpus(), same);
  EXPECT_EQ(same.measured->step_s, 1);
  one.run_configured(on_gpus(), other);
  EXPECT_EQ(other.measured->step_s, 1.2);
  one.run_configured(on_gpus(), unknown);
  EXPECT_FALSE(unknown.measured);
  EXPECT_EQ(chunks_, (std::vector<int>{1, 4}));
}

TEST_F(VerifyPlans, TheConfiguredPlanIsNotRunWithoutTimeForIt) {
  budget_ = budget_of(kStart + kSteps + 8);
  takes_ = {1, 1};
  PlanRuns one = runs();
  one.run_best({candidate(1)}, 1);
  ConfiguredPlan other{.predicted = candidate(4)};
  one.run_configured(on_gpus(), other);
  EXPECT_FALSE(other.measured);
  EXPECT_NE(other.not_run.find("of --budget are left"), std::string::npos) << other.not_run;
  EXPECT_EQ(chunks_, std::vector<int>{1});
}

}  // namespace
}  // namespace sluice::train
