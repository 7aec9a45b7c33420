// One evaluation or one step outside a run: where its configuration comes from, and which batches it takes.
#include "train/study/one_shot.h"
#include "train/plan/composition.h"

#include <gmock/gmock.h>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "engine/state.h"
#include "storage/checkpoint_store.h"
#include "support/files.h"
#include "train/plan/choose_plan.h"
#include "train/run/resume_point.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

config::Config small_config() {
  config::Config config;
  config.device.list.choice = "cpu";
  config.model.name = "mlp";
  config.model.image_size = 8;
  config.data.name = "shapes";
  config.data.samples = 40;
  config.data.workers = 0;
  config.train.global_batch = 8;
  config.train.precision = "fp64";
  return config;
}

// A run that has saved fresh weights as those of `step`; `state` is what its state.json says.
fs::path save(const fs::path& run, const config::Config& config, std::int64_t step, const nlohmann::json& state) {
  const train::Setup setup = make_setup(config);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  const engine::Composition& composition = engine.composition();
  return storage::CheckpointStore(run / "checkpoints", 9)
      .save(step, {.model = engine::model_tensors(composition), .optimizer = {}, .state = state});
}

nlohmann::json state_of(const config::Config& config) { return {{"config", config::to_toml(config)}}; }

TEST(RunEvaluation, TakesTheConfigurationOfTheCheckpointAndSaysWhichItWas) {
  const sluice::test::TempDir dir;
  config::Config other = small_config();
  other.train.seed = 2;
  save(dir / "run", other, 2, state_of(other));
  const fs::path newest = save(dir / "run", small_config(), 5, state_of(small_config()));
  sluice::test::spill(dir / "small.toml", config::to_toml(small_config()));

  const Evaluation found = run_evaluation({.checkpoint = dir / "run"});
  EXPECT_EQ(found.checkpoint, newest);
  EXPECT_EQ(found.step, 5);
  EXPECT_EQ(found.sums.targets, 8);
  const Evaluation named = run_evaluation({.config_file = dir / "small.toml", .checkpoint = newest});
  EXPECT_EQ(named.sums.loss(), found.sums.loss());
  const Evaluation older = run_evaluation({.checkpoint = dir / "run/checkpoints/step-2"});
  EXPECT_EQ(older.step, 2);
  EXPECT_NE(older.sums.loss(), found.sums.loss());

  const Evaluation limited = run_evaluation({.sets = {"data.limit=3"}, .checkpoint = dir / "run/"});
  EXPECT_EQ(limited.checkpoint, newest);
  EXPECT_EQ(limited.sums.targets, 3);
  const Evaluation weights =
      run_evaluation({.config_file = dir / "small.toml", .weights = newest / "model.safetensors"});
  EXPECT_EQ(weights.sums.loss(), found.sums.loss());
  EXPECT_TRUE(weights.checkpoint.empty());
}

TEST(RunEvaluation, AnotherConfigurationThanTheCheckpointsWinsAndHasToFit) {
  const sluice::test::TempDir dir;
  const fs::path checkpoint = save(dir / "run", small_config(), 1, state_of(small_config()));
  config::Config other = small_config();
  other.model.name = "toy_cnn";
  sluice::test::spill(dir / "other.toml", config::to_toml(other));
  EXPECT_THROW((void)run_evaluation({.config_file = dir / "other.toml", .checkpoint = checkpoint}), CheckpointError);
}

TEST(RunEvaluation, ACheckpointWithoutAConfigurationNeedsOne) {
  const sluice::test::TempDir dir;
  const fs::path checkpoint = save(dir / "run", small_config(), 1, nlohmann::json::object());
  EXPECT_EQ(sluice::test::error_of<ConfigError>([&] { return run_evaluation({.checkpoint = dir / "run"}); }),
            concat(checkpoint.string(), " has no configuration; pass one: sluice eval CONFIG --checkpoint ",
                   checkpoint.string()));
  sluice::test::spill(dir / "run/config.toml", config::to_toml(small_config()));
  EXPECT_EQ(run_evaluation({.checkpoint = dir / "run"}).step, 1);
  EXPECT_THAT(sluice::test::error_of<ConfigError>(
                  [&] { return run_evaluation({.weights = checkpoint / "model.safetensors"}); }),
              HasSubstr("sluice eval CONFIG --weights FILE"));
}

// A run directory stands for its newest checkpoint, and its run may still save: constants and tensors are of one.
TEST(StartOfARun, WeightsAreOfTheCheckpointThatTheConstantsAreOf) {
  const sluice::test::TempDir dir;
  const fs::path first = save(dir / "run", small_config(), 4, state_of(small_config()));
  config::Config config = small_config();
  config.model.weights = (dir / "run").string();
  config.train.seed = 3;
  train::Setup setup = make_setup(config);
  std::optional<ResumePoint> resume = read_resume_point({}, {}, setup);
  EXPECT_FALSE(resume);
  EXPECT_EQ(setup.weights_path, first);
  config::Config later = small_config();
  later.train.seed = 2;
  save(dir / "run", later, 8, state_of(later));
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  load_start(engine.composition(), setup, resume);
  const storage::TensorMap expected = storage::read_safetensors(first / "model.safetensors").tensors;
  for (const auto& [name, tensor] : engine::model_tensors(engine.composition()))
    EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
}

class OwnBatch : public testing::Test {
 protected:
  OwnBatch() { config_.model.classes = 3, config_.model.channels = 2; }

  fs::path batch(std::int64_t channels, std::int64_t side, const std::vector<std::int64_t>& targets) const {
    const auto count = static_cast<std::int64_t>(targets.size());
    const auto inputs = at::arange(count * channels * side * side, at::kDouble).div(100).sin();
    storage::write_safetensors(
        dir_ / "batch", {{"inputs", inputs.reshape({count, channels, side, side})}, {"targets", at::tensor(targets)}});
    return dir_ / "batch";
  }
  storage::TensorMap step(const fs::path& file) const {
    (void)run_single_step(config_, {.batch = file, .out = dir_ / "out"});
    return storage::read_safetensors(dir_ / "out").tensors;
  }

  sluice::test::TempDir dir_;
  config::Config config_ = small_config();
};

TEST_F(OwnBatch, IsJudgedByTheModelAndNotByTheDataSet) {
  config_.data.name = "mnist";
  config_.data.path = (dir_ / "no such folder").string();  // not opened
  config_.train.lr_schedule = "onecycle";
  config_.train.warmup_steps = 10;
  const storage::TensorMap out = step(batch(2, 8, {0, 2, 1}));
  EXPECT_EQ(out.at("logits").sizes(), (std::vector<std::int64_t>{3, 3}));
  EXPECT_NEAR(out.at("loss").item<double>(),
              at::cross_entropy_loss(out.at("logits"), at::tensor({0L, 2L, 1L})).item<double>(), 1e-12);
}

TEST_F(OwnBatch, SizesThatTheConfigurationLeavesOpenAreTheDataSets) {
  config_.model.channels = 0;
  config_.model.image_size = 0;
  EXPECT_EQ(step(batch(3, 32, {2, 0})).at("logits").size(1), 3) << "shapes has 10 classes, 3 are set";
}

// The same numbers, but for their last digits: the key reaches the convolutions.
TEST_F(OwnBatch, IsRoundedAsTrainWinogradSays) {
  config_.model.name = "resnet8";
  config_.model.image_size = 16;
  config_.train.precision = "fp32";
  const fs::path file = batch(2, 16, {0, 2, 1, 1, 0, 2});
  std::vector<at::Tensor> logits;
  for (const char* word : {"none", "2x2", "4x4"}) {
    config_.train.winograd = word;
    logits.push_back(step(file).at("logits"));
    for (std::size_t i = 0; i + 1 < logits.size(); ++i) {
      EXPECT_FALSE(at::equal(logits[i], logits.back())) << word;
      EXPECT_LE((logits[i] - logits.back()).abs().max().item<double>(), 1e-5) << word;
    }
  }
}

TEST_F(OwnBatch, WhatDoesNotFitTheModelSaysWhichKeyToSet) {
  const auto refusal = [&](const fs::path& file) {
    return sluice::test::error_of<DataError>([&] { return step(file); });
  };
  EXPECT_EQ(refusal(batch(2, 8, {0, 3})),
            concat((dir_ / "batch").string(),
                   ": 'targets' holds 3, but the model has 3 classes, 0 to 2; set model.classes = 4 or more"));
  EXPECT_EQ(
      refusal(batch(2, 8, {0, -1})),
      concat((dir_ / "batch").string(), ": 'targets' holds -1, but the model has 3 classes, 0 to 2; correct the file"));
  EXPECT_THAT(refusal(batch(1, 8, {0})), AllOf(HasSubstr("'inputs' is [1, 1, 8, 8]"), HasSubstr("needs [n, 2, 8, 8]"),
                                               HasSubstr("set model.channels and model.image_size")));
}

}  // namespace
}  // namespace sluice::train
