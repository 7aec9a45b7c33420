// What a run that goes on needs to know, what it warns of and what it refuses.
#include "train/run/resume.h"
#include "train/plan/plan_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include <ATen/ATen.h>

#include "core/error.h"
#include "storage/checkpoint_store.h"
#include "support/files.h"
#include "train/setup/run_state.h"

namespace sluice::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename Error>
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

RunState example_state() {
  config::Config config;
  config.data.name = "shapes";
  return {.progress = {.steps_done = 17, .position = {.epoch = 3, .batch = 2}, .evaluation_due = true},
          .optimizer_steps = 18,
          .plan = {.partition = {{2, 3}}, .replicas = 2, .chunks = 4, .global_batch = 64, .schedule = "gpipe"},
          .changes = {{20, {.partition = {{5}}, .schedule = "1f1b"}, true}, {30, {.partition = {{1, 4}}}}},
          .metrics = {.bytes = 12345, .time_s = 6.5},
          .config_toml = config::to_toml(config)};
}

TEST(RunState, SurvivesJson) {
  const RunState state = example_state();
  const RunState copy = RunState::from_json(nlohmann::json::parse(state.to_json().dump()), "here");
  EXPECT_EQ(copy.progress.steps_done, 17);
  EXPECT_EQ(copy.progress.position.epoch, 3);
  EXPECT_EQ(copy.progress.position.batch, 2);
  EXPECT_TRUE(copy.progress.evaluation_due);
  EXPECT_EQ(copy.optimizer_steps, 18);
  EXPECT_EQ(copy.plan, state.plan);
  EXPECT_EQ(copy.changes, state.changes);
  EXPECT_EQ(copy.metrics.bytes, 12345U);
  EXPECT_EQ(copy.metrics.time_s, 6.5);
  EXPECT_EQ(copy.config_toml, state.config_toml);
}

TEST(RunState, AnOrderSurvivesJsonAndIsNotInEarlierOnes) {
  RunState state = example_state();
  state.plan.schedule = Plan::kFromFile;
  state.plan.schedule_text = "0F0 0B0\n1F0 1B0\n";
  nlohmann::json json = nlohmann::json::parse(state.to_json().dump());
  EXPECT_EQ(RunState::from_json(json, "here").plan, state.plan);
  json["plan"].erase("order");
  EXPECT_EQ(RunState::from_json(json, "here").plan.schedule_text, "");
}

TEST(RunState, UpdatesOfWhatWasFrozenSurviveJsonAndAreNotInEarlierOnes) {
  RunState state = example_state();  // of 18 optimizer steps
  EXPECT_TRUE(RunState::from_json(state.to_json(), "here").updates.empty());
  state.updates = {{"frozen.weight", 7}, {"head.weight", 18}};
  EXPECT_EQ(RunState::from_json(nlohmann::json::parse(state.to_json().dump()), "here").updates,
            (engine::UpdateCounts{{"frozen.weight", 7}}))
      << "one that was updated in every step needs no entry";
}

TEST(RunState, OfItsDataSurvivesJsonAndIsNotInEarlierOnes) {
  RunState state = example_state();
  EXPECT_FALSE(state.to_json().contains("data"));
  EXPECT_FALSE(RunState::from_json(state.to_json(), "here").data);
  state.data = DataIdentity{.train = {60000, "aa"}, .test = {10000, "bb"}};
  EXPECT_EQ(RunState::from_json(nlohmann::json::parse(state.to_json().dump()), "here").data, state.data);
  nlohmann::json damaged = state.to_json();
  damaged["data"]["test"].erase("digest");
  EXPECT_THAT(refusal<CheckpointError>([&] { (void)RunState::from_json(damaged, "run/step-17"); }),
              HasSubstr("run/step-17"));
}

TEST(RunState, OfChangesIsNotWhereThereAreNone) {
  RunState state = example_state();
  state.changes.clear();
  EXPECT_FALSE(state.to_json().contains("changes"));
  EXPECT_TRUE(RunState::from_json(state.to_json(), "here").changes.empty());
}

TEST(RunState, AnyFieldThatIsMissingOrOfAnotherTypeIsACheckpointError) {
  const nlohmann::json whole = example_state().to_json();
  for (const auto& [key, value] : whole.items()) {
    for (const bool missing : {true, false}) {
      nlohmann::json damaged = whole;
      damaged[key] = nlohmann::json::array({"x"});
      if (missing) damaged.erase(key);
      if (missing && (key == "changes" || key == "evaluations")) continue;  // there are none
      EXPECT_THAT(refusal<CheckpointError>([&] { (void)RunState::from_json(damaged, "run/step-17"); }),
                  HasSubstr("run/step-17"))
          << key;
    }
  }
}

TEST(RunState, AnotherFormatSaysSo) {
  nlohmann::json newer = example_state().to_json();
  newer["state_format"] = 99;
  EXPECT_THAT(refusal<CheckpointError>([&] { (void)RunState::from_json(newer, "here"); }),
              HasSubstr("state format 99"));
}

TEST(CheckResumable, RefusesWhatChangesTheOrderOfTheSamplesByKey) {
  const RunState state = example_state();
  const config::Config same = config::parse(state.config_toml, "saved");
  EXPECT_NO_THROW(check_resumable(same, state, "here"));
  const auto refused = [&](void (*change)(config::Config&)) {
    config::Config config = same;
    change(config);
    return refusal<ConfigError>([&] { check_resumable(config, state, "run/step-17"); });
  };
  EXPECT_THAT(refused([](auto& c) { c.train.seed = 5; }), HasSubstr("run/step-17 with train.seed = 5"));
  EXPECT_THAT(refused([](auto& c) { c.train.global_batch = 5; }), HasSubstr("train.global_batch = 5"));
  EXPECT_THAT(refused([](auto& c) { c.data.name = "mnist"; }), HasSubstr("data.name = mnist"));
  EXPECT_THAT(refused([](auto& c) { c.data.limit = 5; }), HasSubstr("data.limit = 5"));
  EXPECT_THAT(refused([](auto& c) { c.data.samples = 5; }), HasSubstr("data.samples = 5"));
  RunState with_data = state;
  with_data.data.emplace();
  config::Config other = same;
  other.data.limit = 5;
  EXPECT_NO_THROW(check_resumable(other, with_data, "here")) << "the data themselves are compared";
  EXPECT_NO_THROW(check_resumable(other, state, "here", NewData::kAccepted));
  other.data.name = "mnist";
  EXPECT_NO_THROW(check_resumable(other, with_data, "here", NewData::kAccepted));
  EXPECT_THAT(refused([](auto& c) { c.train.optimizer = "adam"; }), HasSubstr("train.optimizer = adam"));
  EXPECT_THAT(refused([](auto& c) { c.model.name = "vit"; }), HasSubstr("model.name = vit"));
}

TEST(CheckResumable, RefusesARunThatEndsBeforeTheCheckpoint) {
  const RunState state = example_state();
  EXPECT_NO_THROW(check_end(17, state, "here"));
  EXPECT_THAT(refusal<ConfigError>([&] { check_end(16, state, "run/step-17"); }),
              HasSubstr("run/step-17 is at step 17, but the run ends at step 16"));
}

TEST(CheckResumable, AllowsAnotherTopologyLengthAndRate) {
  const RunState state = example_state();
  config::Config config = config::parse(state.config_toml, "saved");
  config.pipeline.stages = 4;
  config.pipeline.schedule = "gpipe";
  config.train.epochs = 50;
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(check_resumable(config, state, "here"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "how and how long is no other training";
  config.train.lr = 0.125, config.train.winograd = "4x4", config.device.tf32 = false;
  config.model.dropout = 0.5;
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(check_resumable(config, state, "run/step-17"));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("run/step-17 was written with other settings; from here on device.tf32 = false (was true)"),
            HasSubstr(", model.dropout = 0.5 (was "), HasSubstr(", train.lr = 0.125 (was "),
            HasSubstr(", train.winograd = \"4x4\" (was \"2x2\")")));
}

TEST(CheckResumable, WarnsOfOtherMicroBatchesIfTheModelHasBatchNorms) {
  for (const char* model : {"resnet8", "vit"}) {
    RunState state = example_state();
    config::Config config = config::parse(state.config_toml, "saved");
    config.model.name = model;
    state.config_toml = config::to_toml(config);
    config.replicas.local = 3;
    config.pipeline.chunks = 4;
    testing::internal::CaptureStderr();
    EXPECT_NO_THROW(check_resumable(config, state, "run/step-17"));
    const std::string text = testing::internal::GetCapturedStderr();
    const char* const differences = "from here on pipeline.chunks = 4 (was 1), replicas.local = 3 (was 1)";
    EXPECT_EQ(text.find(differences) != std::string::npos, std::string(model) == "resnet8") << text;
  }
}

class FindCheckpoint : public testing::Test {
 protected:
  void save(std::int64_t step) const {
    storage::CheckpointStore(run_ / "checkpoints", 9).save(step, {.model = {{"w", at::ones({2})}}, .optimizer = {}});
  }

  sluice::test::TempDir dir_;
  std::filesystem::path run_ = dir_ / "run";
};

TEST_F(FindCheckpoint, TakesTheNewestWholeOneOfARun) {
  for (const int step : {4, 8, 12}) save(step);
  sluice::test::spill(run_ / "checkpoints/step-12/model.safetensors", "torn");
  EXPECT_EQ(find_checkpoint(run_), run_ / "checkpoints/step-8");
}

TEST_F(FindCheckpoint, TakesTheOneThatIsNamedAsItIs) {
  save(4);
  std::filesystem::remove(run_ / "checkpoints/step-4/state.json");  // damage is found when it is loaded
  EXPECT_EQ(find_checkpoint(run_ / "checkpoints/step-4"), run_ / "checkpoints/step-4");
}

TEST_F(FindCheckpoint, FindsNothingWhereNothingWasSaved) {
  std::filesystem::create_directories(run_ / "checkpoints");
  sluice::test::spill(run_ / "metrics.jsonl", "{\"event\":\"step\",\"time_s\":1.0}\n");
  EXPECT_FALSE(find_checkpoint(run_));
  EXPECT_FALSE(find_checkpoint(dir_ / "missing"));
}

TEST_F(FindCheckpoint, RefusesARunWhoseCheckpointsAreAllDamagedOrGone) {
  save(4);
  sluice::test::spill(run_ / "checkpoints/step-4/state.json", "{}");
  const auto found = [&] { (void)find_checkpoint(run_); };
  EXPECT_THAT(refusal<CheckpointError>(found),
              AllOf(HasSubstr("run/checkpoints is damaged"), HasSubstr("nothing was changed")));
  std::filesystem::remove_all(run_ / "checkpoints/step-4");
  sluice::test::spill(run_ / "metrics.jsonl", "{\"event\":\"checkpoint\",\"time_s\":1.0,\"step\":4}\n");
  EXPECT_THAT(refusal<CheckpointError>(found), HasSubstr("run are missing"));
}

TEST(PlanCanBeKept, WhereTheConfigurationStillSaysTheSameOrLeavesItOpen) {
  const Plan saved = example_state().plan;
  config::Config config;
  config.pipeline.stages = 2;
  config.pipeline.chunks.reset();
  config.pipeline.schedule = "gpipe";
  config.replicas.local = 2;
  config::Config was = config;
  EXPECT_TRUE(plan_can_be_kept(config, was, 1, saved));
  const auto kept = [&](void (*change)(config::Config&)) {
    config::Config changed = config;
    change(changed);
    return plan_can_be_kept(changed, was, 1, saved);
  };
  EXPECT_TRUE(kept([](auto& c) { c.pipeline.chunks = 4; }));
  EXPECT_TRUE(kept([](auto& c) { c.pipeline.partition = std::vector<int>{2, 3}; }));
  EXPECT_FALSE(kept([](auto& c) { c.pipeline.chunks = 3; }));
  EXPECT_FALSE(kept([](auto& c) { c.pipeline.partition = std::vector<int>{3, 2}; }));
  EXPECT_FALSE(kept([](auto& c) { c.pipeline.stages = 1; }));
  EXPECT_FALSE(kept([](auto& c) { c.pipeline.recompute.all = "layer"; }));
  EXPECT_FALSE(kept([](auto& c) { c.pipeline.recompute = {.all = "", .stages = {"none", "layer"}}; }));
  EXPECT_FALSE(kept([](auto& c) { c.pipeline.recompute.all = "auto"; })) << "it was not";
  EXPECT_FALSE(kept([](auto& c) { c.pipeline.virtual_stages = 3; }));
  EXPECT_FALSE(kept([](auto& c) { c.pipeline.schedule = "1f1b"; }));
  EXPECT_FALSE(kept([](auto& c) { c.replicas.local = 1; }));
  was.pipeline.partition = std::vector<int>{2, 3};
  EXPECT_FALSE(kept([](auto&) {})) << "the cut was the user's, and is left open now";
  EXPECT_TRUE(kept([](auto& c) { c.pipeline.partition = std::vector<int>{2, 3}; }));
  was = config;
  was.pipeline.chunks = 4;
  EXPECT_FALSE(kept([](auto&) {})) << "the chunks were the user's, and are left open now";
  EXPECT_TRUE(kept([](auto& c) { c.pipeline.chunks = 4; }));
}

TEST(PlanCanBeKept, OfOneStageThereIsOneCutWhoeverWroteIt) {
  config::Config was;
  was.pipeline.partition = std::vector<int>{5};
  config::Config config = was;
  config.pipeline.partition.reset();
  EXPECT_TRUE(plan_can_be_kept(config, was, 1, {.partition = {{5}}}));
}

TEST(PlanCanBeKept, WhereAsManyProcessesMakeAsManyMicroBatches) {
  config::Config config;
  config.pipeline.stages = 2;
  config.pipeline.schedule = "gpipe";
  config.replicas.local = 2;
  config.train.micro_batch = 4;
  const Plan saved = example_state().plan;  // four of 64 samples: of 16 a replica
  EXPECT_TRUE(plan_can_be_kept(config, config, 2, saved));
  EXPECT_FALSE(plan_can_be_kept(config, config, 1, saved)) << "32 a replica are eight";
}

TEST(PlanCanBeKept, WhereTheOrderIsTheSame) {
  config::Config config;
  config.pipeline = {.stages = 2, .chunks = 1, .order = "mine.txt"};
  const std::string schedule_text = "0F0 0B0\n1F0 1B0\n";
  const Plan by_name{.partition = {{2, 3}}};
  Plan saved = by_name;
  saved.schedule = Plan::kFromFile;
  saved.schedule_text = schedule_text;
  EXPECT_TRUE(plan_can_be_kept(config, {}, 1, saved, schedule_text));
  EXPECT_FALSE(plan_can_be_kept(config, {}, 1, saved, "0F0 0I0 0W0\n1F0 1B0\n"));
  EXPECT_FALSE(plan_can_be_kept(config, {}, 1, by_name, schedule_text));
  EXPECT_FALSE(plan_can_be_kept(config, {}, 1, saved));
  EXPECT_TRUE(plan_can_be_kept(config, {}, 1, by_name));
}

bool is_kept(const config::Config& config, const RunState& state) {
  return plan_can_be_kept(config, config::parse(state.config_toml, "state.json config"), 1, state.plan);
}

TEST(PlanCanBeKept, WhereTheCutIsOpenTheLimitMustBeTheSame) {
  const RunState state{.plan = {.partition = {{2, 3}}, .chunks = 2},
                       .config_toml = "[device]\nmemory_limit = \"10MiB\"\n"};
  config::Config config;
  config.pipeline.stages = 2;
  config.pipeline.chunks = 2;
  config.device.memory_limit.bytes = 10 << 20;
  EXPECT_TRUE(is_kept(config, state));
  config.device.memory_limit.bytes = 9 << 20;
  EXPECT_FALSE(is_kept(config, state));
  config.pipeline.partition = std::vector<int>{2, 3};
  EXPECT_TRUE(is_kept(config, state)) << "it has one plan";
}

TEST(PlanCanBeKept, WhereRecomputationIsOpenTheLimitMustBeTheSame) {
  const RunState state{.plan = {.partition = {{2, 3}}, .chunks = 2, .recompute = {false, true}},
                       .config_toml = "[pipeline]\nrecompute = \"auto\"\n[device]\nmemory_limit = \"10MiB\"\n"};
  config::Config config;
  config.pipeline.stages = 2;
  config.pipeline.chunks = 2;
  config.pipeline.recompute.all = "auto";
  config.device.memory_limit.bytes = 10 << 20;
  EXPECT_TRUE(is_kept(config, state));
  config.device.memory_limit.bytes = 9 << 20;
  EXPECT_FALSE(is_kept(config, state));
  // Of a plan of which some stages recompute, neither all nor none do.
  for (const char* const recompute : {"none", "layer"}) {
    config.pipeline.recompute.all = recompute;
    EXPECT_FALSE(is_kept(config, state)) << recompute;
  }
}

}  // namespace
}  // namespace sluice::train
