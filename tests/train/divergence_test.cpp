// A loss that is not finite: what is said to be behind it, which checkpoints stay, and that none is made of weights
// that are not finite.
#include "engine/divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "engine/reference.h"
#include "engine/state.h"
#include "engine/train_step.h"
#include "support/files.h"
#include "train/run/train_run.h"

namespace sluice::train::divergence {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

// "6: what it says"
std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return concat(static_cast<int>(error.exit_code()), ": ", error.what());
  }
  return "no failure";
}

class Divergence : public testing::Test {
 protected:
  std::string failure_of_step(const pipeline::MicroBatch& batch, std::int64_t step) {
    return failure_of([&] { (void)engine::TrainStep(grid_, {}).run(batch, step, 0.25); });
  }
  void set(const std::string& parameter, double value) { engine::model_tensors(grid_).at(parameter).fill_(value); }
  engine::Composition grid_ = engine::test::make_grid(engine::test::small_model("toy_cnn"), "1f1b", 2, 2);
};

TEST_F(Divergence, ASampleThatIsNotFiniteIsBadDataAndNamed) {
  pipeline::MicroBatch batch = engine::test::make_batch(7);
  batch.inputs[0] = batch.inputs[0].clone();
  batch.inputs[0][5][0][1][1].fill_(kNaN);
  batch.inputs[0][5][0][1][2].fill_(kInfinity);
  const auto id = batch.sample_ids[5].item<std::int64_t>();
  EXPECT_THAT(failure_of_step(batch, 3),
              AllOf(StartsWith("3: step 4: the loss is NaN"),
                    HasSubstr(concat("sample ", id, " has 1 NaN and 1 infinite value among its inputs")),
                    Not(HasSubstr("train.lr"))));
}

TEST_F(Divergence, AParameterThatTheLastUpdateRuinedIsNamed) {
  set("fc.weight", kInfinity);
  EXPECT_THAT(
      failure_of_step(engine::test::make_batch(7), 3),
      AllOf(StartsWith("6: step 4: the loss is "), HasSubstr("fc.weight has 320 infinite values since the update"),
            HasSubstr("lower train.lr (0.25")));
}

TEST_F(Divergence, TheLearningRateIsNotBlamedForTheLossBeforeTheFirstUpdate) {
  set("conv1.bias", 1e308);
  set("fc.weight", 1e308);
  EXPECT_THAT(failure_of_step(engine::test::make_batch(7), 0),
              AllOf(StartsWith("6: step 1: the loss is "), HasSubstr("train.lr is not the cause"),
                    HasSubstr("model.weights"), Not(HasSubstr("lower train.lr"))));
  EXPECT_THAT(failure_of_step(engine::test::make_batch(7), 1), HasSubstr("; lower train.lr (0.25 in this step)"));
}

class DivergingRun : public testing::Test {
 protected:
  // Goes on to `steps` at that learning rate, with a checkpoint after each step.
  [[nodiscard]] std::string train(int steps, const char* lr) const {
    const config::Config config = config::parse(
        concat("[device]\nlist = \"cpu\"\n[model]\nname = \"resnet8\"\nimage_size = 8\n[data]\nname = \"shapes\"\n"
               "samples = 64\n[train]\noptimizer = \"sgd\"\nglobal_batch = 16\nsteps = ",
               steps, "\nlr = ", lr, "\n[checkpoint]\nkeep = 1\nevery_steps = 1\n[log]\ntensorboard = false\n"),
        "test");
    return failure_of([&] { (void)run_training(config, {.run_dir = dir_ / "run", .resume = "auto"}); });
  }
  [[nodiscard]] fs::path checkpoint(int step) const { return dir_ / "run" / "checkpoints" / concat("step-", step); }
  [[nodiscard]] bool has(int step) const { return fs::exists(checkpoint(step)); }

  sluice::test::TempDir dir_;
};

// Step 3 is done with good weights and ruins them, though they are still finite; step 4 shows it.
TEST_F(DivergingRun, TheCheckpointThatIsProvenStaysAndIsNamed) {
  ASSERT_EQ(train(2, "0.05"), "no failure");
  EXPECT_THAT(train(9, "1e30"),
              AllOf(StartsWith("6: step 4: the loss is NaN"),
                    HasSubstr(concat(checkpoint(3).string(), " holds the weights that gave this loss")),
                    HasSubstr(concat("the last good checkpoint is ", checkpoint(2).string(),
                                     ", and --resume auto continues from it"))));
  EXPECT_TRUE(has(2)) << "keep = 1 must not remove it";
  EXPECT_FALSE(has(3));
  EXPECT_EQ(train(4, "0.05"), "no failure") << "it goes on from step 2";
}

TEST_F(DivergingRun, NoCheckpointIsMadeOfWeightsThatAreNotFinite) {
  ASSERT_EQ(train(2, "0.05"), "no failure");
  EXPECT_THAT(train(9, "1e39"), AllOf(StartsWith("6: after step 3: "), HasSubstr("so no checkpoint was written"),
                                      HasSubstr("lower train.lr"),
                                      HasSubstr(concat("the last good checkpoint is ", checkpoint(2).string()))));
  EXPECT_FALSE(has(3));
  EXPECT_TRUE(has(2));
  EXPECT_EQ(train(4, "0.05"), "no failure") << "it goes on from there";
}

}  // namespace
}  // namespace sluice::train::divergence
