#include "train/plan/freeze_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "train/plan/freeze_planner.h"
#include "train/setup/run_state.h"

namespace sluice::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// vit nano: embeddings, 4 blocks of 2 layers, the head. 8 batches an epoch.
config::Config config_of(const std::string& policy, std::vector<std::string> schedule = {}) {
  config::Config config;
  config.device.list.choice = "cpu";
  config.model.name = "vit";
  config.model.size = "nano";
  config.model.image_size = 16;
  config.data.name = "shapes";
  config.data.samples = 80;
  config.data.workers = 0;
  config.train.global_batch = 10;
  config.train.epochs = 6;
  config.pipeline.stages = 2;
  config.pipeline.chunks = 2;
  config.freeze.policy = policy;
  config.freeze.schedule = std::move(schedule);
  return config;
}

std::vector<std::pair<std::int64_t, int>> steps_and_layers(const RunPlans& plans) {
  std::vector<std::pair<std::int64_t, int>> pairs;
  for (const PlanChange& change : plans.changes) pairs.emplace_back(change.after, change.plan.frozen_layers);
  return pairs;
}

using Pairs = std::vector<std::pair<std::int64_t, int>>;

TEST(FreezePlans, ComeAtTheBeginningOfEpochsUntilTheRunEnds) {
  EXPECT_EQ(steps_and_layers(plan_freezing_run(make_setup(config_of("linear")), nullptr)),
            (Pairs{{8, 5}, {16, 7}, {32, 9}}));
  config::Config config = config_of("schedule", {"1: 3", "2: 1", "4: 0", "5: 2"});
  EXPECT_EQ(steps_and_layers(plan_freezing_run(make_setup(config), nullptr)),
            (Pairs{{8, 7}, {16, 3}, {32, 0}, {40, 5}}));
  config.train.steps = 32;
  EXPECT_EQ(steps_and_layers(plan_freezing_run(make_setup(config), nullptr)), (Pairs{{8, 7}, {16, 3}}));
  config.freeze.unit = "half";
  EXPECT_EQ(steps_and_layers(plan_freezing_run(make_setup(config), nullptr)), (Pairs{{8, 4}, {16, 2}}));
}

TEST(FreezePlans, OfADeterministicRunKeepTheShape) {
  config::Config config = config_of("schedule", {"1: 2"});
  config.train.deterministic = true;
  const RunPlans plans = plan_freezing_run(make_setup(config), nullptr);
  ASSERT_EQ(plans.changes.size(), 1U);
  EXPECT_EQ(plans.changes[0].plan.devices(), 2);
  EXPECT_EQ(plans.changes[0].plan.replicas, 1);
  EXPECT_EQ(plans.changes[0].plan.chunks, 2);
}

// Epochs are counted from 0; something is frozen since epoch 1.
TEST(ShareThatRuns, IsThatOfNewViewsAndOfWhatHasNoRoom) {
  constexpr std::uint64_t kRow = 4000;
  const auto share = [](const config::Config& config, std::int64_t epoch, std::int64_t end) {
    return running_share(make_setup(config), {.epoch = epoch, .end = end}, 1, kRow);
  };
  config::Config config = config_of("linear");
  EXPECT_EQ(share(config, 2, 6), 1) << "no cache";
  config.freeze.cache = "memory";
  EXPECT_EQ(share(config, 1, 2), 1);
  EXPECT_EQ(share(config, 1, 6), 1.0 / 5);
  EXPECT_EQ(share(config, 2, 6), 0);
  config.data.flip = true;
  config.data.views = 3;
  EXPECT_EQ(share(config, 1, 6), 3.0 / 5);
  EXPECT_EQ(share(config, 3, 6), 1.0 / 3);
  EXPECT_EQ(share(config, 4, 6), 0);
  config.freeze.cache_bytes.bytes = 80 * 3 * (kRow + 96) / 4;  // the index takes 96 bytes
  EXPECT_NEAR(share(config, 4, 6), 0.75, 1e-9);
  EXPECT_NEAR(share(config, 3, 6), 1.0 / 3 + 2.0 / 3 * 0.75, 1e-9);
  config.freeze.cache_precision = "bf16";
  EXPECT_NEAR(share(config, 4, 6), 1 - 0.25 * 4096 / 2096, 1e-9);
  config.freeze.cache = "auto";
  config.freeze.cache_disk_bytes.bytes = config.freeze.cache_bytes.bytes;
  EXPECT_NEAR(share(config, 4, 6), 1 - 0.5 * 4096 / 2096, 1e-9);
  config.freeze.cache = "disk";
  EXPECT_NEAR(share(config, 4, 6), 1 - 0.25 * 4096 / 2096, 1e-9) << "memory is for the index";
  config.train.precision = "fp64";
  EXPECT_NEAR(share(config, 4, 6), 1 - 0.25 * 4096 / 1096, 1e-9) << "two bytes of eight";
  config.train.precision = "bf16";
  EXPECT_NEAR(share(config, 4, 6), 0.75, 1e-9) << "two bytes already";
}

TEST(FreezePlanner, KnowsSinceWhenSomethingIsKept) {
  const train::Setup setup = make_setup(config_of("linear"));
  FreezePlanner planner(setup);
  planner.note(1, 0, 2);
  planner.note(2, 2, 3);
  EXPECT_EQ(planner.kept_since(), 1);
  planner.note(3, 3, 1);
  EXPECT_EQ(planner.kept_since(), 3) << "what thaws takes all rows with it";
  planner.note(4, 1, 0);
  EXPECT_FALSE(planner.kept_since().has_value());
  FreezePlanner resumed(setup, 5);
  resumed.note(1, 0, 2);
  EXPECT_EQ(resumed.kept_since(), 5) << "the cache was empty then";
}

// A run that was saved after step 20, in batch 4 of epoch 2.
RunState saved_state(const config::Config& config, const RunPlans& plans) {
  return {.progress = {.steps_done = 20, .position = {.epoch = 2, .batch = 4}},
          .plan = plans.changes.at(1).plan,
          .changes = plans.changes,
          .config_toml = config::to_toml(config)};
}

TEST(FreezePlans, AreKeptAsTheyWereDecidedAndGoThroughTheState) {
  const config::Config config = config_of("linear");
  RunPlans plans = plan_freezing_run(make_setup(config), nullptr);
  for (PlanChange& change : plans.changes) change.freeze->predicted_s *= 2;  // no measurement would give this again
  const RunState state = saved_state(config, plans);
  const RunState read = RunState::from_json(state.to_json(), "state.json");
  EXPECT_EQ(read.changes, state.changes);
  EXPECT_EQ(read.plan, state.plan);
  const RunPlans again = plan_freezing_run(make_setup(config), &read);
  EXPECT_EQ(again.changes, plans.changes);
  EXPECT_EQ(again.now, state.plan);
  EXPECT_FALSE(again.tries_chunks);
}

TEST(FreezePlans, OfOtherSettingsAreDecidedAnewFromWhereTheRunStands) {
  const config::Config config = config_of("linear");
  const RunState state = saved_state(config, plan_freezing_run(make_setup(config), nullptr));
  const RunPlans scheduled = plan_freezing_run(make_setup(config_of("schedule", {"1: 1", "3: 4"})), &state);
  EXPECT_EQ(steps_and_layers(scheduled), (Pairs{{8, 3}, {24, 9}}));
  EXPECT_EQ(scheduled.now.frozen_layers, 3) << "what the new policy has in this epoch";
  config::Config wide = config;
  wide.replicas.local = 2;
  const RunPlans others = plan_freezing_run(make_setup(wide), &state);
  EXPECT_EQ(others.now.frozen_layers, 7);
  EXPECT_GE(others.now.replicas, 2);
  // In a shape that they would not have taken.
  config::Config rigid = config;
  rigid.freeze.elastic = false;
  RunState elastic = state;
  for (PlanChange& change : elastic.changes) change.freeze->predicted_s = 1e6;
  for (const PlanChange& change : plan_freezing_run(make_setup(rigid), &elastic).changes)
    EXPECT_LT(change.freeze->predicted_s, 1e6) << change.after;
  // Another number of batches an epoch, from the batch on at which it stands.
  config::Config more = config;
  more.data.samples = 120;
  EXPECT_EQ(steps_and_layers(plan_freezing_run(make_setup(more), &state)).back(),
            (std::pair<std::int64_t, int>(40, 9)));
}

TEST(FreezePlans, OfGradientsKeepWhatIsFrozenUnderOtherSettings) {
  const config::Config config = config_of("gradient");
  RunState state = saved_state(config, plan_freezing_run(make_setup(config_of("linear")), nullptr));
  state.norms = {4, 3, 2, 1};
  const RunState read = RunState::from_json(state.to_json(), "state.json");
  const RunPlans same = plan_freezing_run(make_setup(config), &read);
  EXPECT_EQ(same.now, state.plan);
  EXPECT_EQ(same.norms, state.norms);
  config::Config other = config;
  other.pipeline.planning_budget_s = 20;
  EXPECT_EQ(plan_freezing_run(make_setup(other), &read).now.frozen_layers, state.plan.frozen_layers);
  // Another number of processes has other shares of a batch; without freezing nothing stays frozen.
  RunState of_two = read;
  of_two.processes = 2;
  EXPECT_EQ(plan_freezing_run(make_setup(config), &of_two).now.frozen_layers, state.plan.frozen_layers);
  EXPECT_TRUE(plan_freezing_run(make_setup(config), &of_two).norms.empty());
  const Plan plain = plan_run(make_setup(config_of("none")), &read).now;
  EXPECT_EQ(plain.frozen_layers, 0);
}

TEST(CheckFreezing, RefusesWhatCannotBeBeforeAnythingIsMeasured) {
  EXPECT_NO_THROW(check_freezing(make_setup(config_of("linear"))));
  const auto refusal = [](const config::Config& config) { return [&] { check_freezing(make_setup(config)); }; };
  EXPECT_THAT(refusal(config_of("schedule", {"1: 5"})), ThrowsMessage<ConfigError>(HasSubstr("freeze.schedule")));
  config::Config looped = config_of("linear");
  looped.pipeline.schedule = "interleaved";
  EXPECT_THAT(refusal(looped), ThrowsMessage<ConfigError>(HasSubstr("needs 2 for the stages of a device")));
  looped.train.epochs = 4;  // the last block stays
  EXPECT_NO_THROW(check_freezing(make_setup(looped)));
}

}  // namespace
}  // namespace sluice::train
