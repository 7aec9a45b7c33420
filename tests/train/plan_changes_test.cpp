// Which plan holds when, and which of a checkpoint's plans are kept.
#include "train/plan/plan_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "train/setup/run_state.h"
#include "train_run_support.h"

namespace sluice::train::test {
namespace {

using testing::HasSubstr;

config::Config with_changes(std::vector<std::string> changes) {
  config::Config config = small_run();
  config.train.steps = 50;
  config.pipeline.changes = std::move(changes);
  return config;
}

// As a run that was planned from `config` saves it.
RunState saved_at(std::int64_t step, const config::Config& config) {
  const RunPlans plans = plan_run(make_setup(config), nullptr);
  RunState state{.plan = plans.now, .changes = plans.changes, .config_toml = config::to_toml(config)};
  state.progress.steps_done = step;
  if (const PlanChange* const change = in_force(plans.changes, step)) state.plan = change->plan;
  return state;
}

TEST(PlanThatHolds, IsTheLastThatHasComeAndWasTaken) {
  std::vector<PlanChange> changes{{.after = 5}, {.after = 9}, {.after = 20}};
  EXPECT_EQ(in_force(changes, 0), nullptr);
  EXPECT_EQ(in_force(changes, 5), nullptr) << "it comes after the checkpoint of this step";
  EXPECT_EQ(in_force(changes, 6), &changes[0]);
  EXPECT_EQ(in_force(changes, 20), &changes[1]);
  changes[1].is_refused = true;
  EXPECT_EQ(in_force(changes, 20), &changes[0]);
  EXPECT_EQ(in_force(changes, 21), &changes[2]);
}

TEST(PlanRun, OfANewRunHasAllPlans) {
  const config::Config config = with_changes({"5: replicas = 2", "9: chunks = 2", "20: stages = 1, replicas = 3"});
  const RunPlans plans = plan_run(make_setup(config), nullptr);
  EXPECT_EQ(plans.now.replicas, 1);
  ASSERT_EQ(plans.changes.size(), 3U);
  EXPECT_EQ(plans.changes[0].plan.replicas, 2);
  EXPECT_EQ(plans.changes[0].plan.chunks, 1);
  EXPECT_EQ(plans.changes[1].plan.replicas, 2);
  EXPECT_EQ(plans.changes[1].plan.chunks, 2);
  EXPECT_EQ(plans.changes[2].plan.replicas, 3);
}

TEST(PlanRun, GoesOnUnderThePlanThatHoldsThere) {
  const config::Config config = with_changes({"5: replicas = 2", "9: replicas = 3"});
  const train::Setup setup = make_setup(config);
  for (const auto& [step, replicas] : std::vector<std::pair<int, int>>{{3, 1}, {5, 1}, {6, 2}, {9, 2}, {12, 3}}) {
    const RunState state = saved_at(step, config);
    const RunPlans plans = plan_run(setup, &state);
    EXPECT_EQ(plans.now.replicas, replicas) << "step " << step;
    EXPECT_EQ(plans.changes, state.changes);
  }
}

TEST(PlanRun, KeepsThePlanOfARunWhoseChangeWasRefused) {
  const config::Config config = with_changes({"5: replicas = 2", "9: replicas = 3"});
  RunState state = saved_at(12, config);
  state.changes[1].is_refused = true;
  state.plan = state.changes[0].plan;
  const RunPlans plans = plan_run(make_setup(config), &state);
  EXPECT_EQ(plans.now.replicas, 2);
  EXPECT_TRUE(plans.changes[1].is_refused);
}

TEST(PlanRun, DecidesAnewWhatWasMadeUnderOtherSettings) {
  const RunState state = saved_at(12, with_changes({"5: replicas = 2", "20: replicas = 3"}));
  const auto of = [&](std::vector<std::string> changes) {
    return plan_run(make_setup(with_changes(std::move(changes))), &state);
  };
  EXPECT_EQ(of({}).now.replicas, 1);
  EXPECT_TRUE(of({}).changes.empty());
  const RunPlans plans = of({"5: replicas = 4", "20: chunks = 2"});
  EXPECT_EQ(plans.now.replicas, 4);
  EXPECT_EQ(plans.changes[1].plan.replicas, 4);
  EXPECT_EQ(plans.changes[1].plan.chunks, 2);
}

TEST(SourceOf, GivesEachAtItsStepAndNotesARefusal) {
  std::vector<PlanChange> changes{{.after = 5, .plan = {.chunks = 7}}};
  const PlanSource source = source_of(changes);
  EXPECT_FALSE(source.next(4));
  ASSERT_TRUE(source.next(5));
  EXPECT_EQ(source.next(5)->chunks, 7);
  source.refused(5);
  EXPECT_TRUE(changes[0].is_refused);
  EXPECT_FALSE(PlanSource{}.next(0));
}

TEST(CheckChanges, NamesTheChangeThatDoesNotSuitTheRun) {
  config::Config config = with_changes({"5: replicas = 2", "9: stages = 99"});
  const train::Setup setup = make_setup(config);
  EXPECT_THAT(sluice::test::error_of<Error>([&] { check_changes(setup); }),
              testing::AllOf(HasSubstr("the change after step 9"), HasSubstr("99 stages")));
}

}  // namespace
}  // namespace sluice::train::test
