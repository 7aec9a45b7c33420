// `sluice step` does what the first step of `sluice train` does, bit for bit, whatever keys of the optimizer, its rate
// and the loss are set. That the step is right is tests/app/compare_with_torch.py.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "storage/safetensors.h"
#include "train/setup/setup.h"
#include "train/study/one_shot.h"
#include "train_run_support.h"

namespace sluice::train::test {
namespace {

using Change = std::function<void(config::Config&)>;

struct Key {
  std::string name;
  Change change;
  bool shows = true;  // in the parameters after one step
};

// Of the model's tensors as they are after the first step.
storage::TensorMap after_train(const config::Config& config, const sluice::test::TempDir& dir) {
  (void)run_training(config, into(dir / "run"));
  return storage::read_safetensors(dir / "run" / "checkpoints" / "step-1" / "model.safetensors").tensors;
}

storage::TensorMap after_step(const config::Config& config, const sluice::test::TempDir& dir) {
  (void)run_single_step(config, {.config_file = {}, .weights = {}, .batch = {}, .out = dir / "out.safetensors"});
  return storage::read_safetensors(dir / "out.safetensors").tensors;
}

storage::TensorMap copy_of(const storage::TensorMap& tensors) {
  storage::TensorMap copies;
  for (const auto& [name, tensor] : tensors) copies[name] = tensor.clone();
  return copies;
}

storage::TensorMap expect_step_equals_train(const config::Config& config, const std::string& what) {
  SCOPED_TRACE(what);
  const sluice::test::TempDir dir;
  const storage::TensorMap step = after_step(config, dir);
  storage::TensorMap train = copy_of(after_train(config, dir));
  for (const auto& [name, tensor] : train) {
    const auto same = step.contains("param/" + name) ? step.find("param/" + name) : step.find("buffer/" + name);
    EXPECT_TRUE(same != step.end() && at::equal(same->second, tensor)) << name;
  }
  const nlohmann::json first = events_of(dir / "run", "step").at(0);
  EXPECT_EQ(first.at("loss").get<double>(), step.at("loss").item<double>());
  EXPECT_EQ(first.contains("gradient_norm"), step.contains("gradient_norm"));
  if (step.contains("gradient_norm")) {
    EXPECT_EQ(first.at("gradient_norm").get<double>(), step.at("gradient_norm").item<double>());
  }
  return train;
}

bool are_equal(const storage::TensorMap& one, const storage::TensorMap& other) {
  return std::ranges::all_of(one, [&](const auto& entry) { return at::equal(entry.second, other.at(entry.first)); });
}

std::vector<Key> keys_of(const std::string& optimizer) {
  const bool is_adam = optimizer.starts_with("adam");
  std::vector<Key> keys{
      {"lr", [](auto& c) { c.train.lr = 0.02; }},
      {"weight_decay", [](auto& c) { c.train.weight_decay = 0.3; }},
      {"clip_norm below the norm", [](auto& c) { c.train.clip_norm = 0.01; }},
      {"clip_norm above the norm", [](auto& c) { c.train.clip_norm = 1e6; }, false},
      {"label_smoothing", [](auto& c) { c.train.label_smoothing = 0.1; }},
      {"warmup_steps", [](auto& c) { c.train.warmup_steps = 2; }},
      {"onecycle", [](auto& c) { c.train.lr_schedule = "onecycle"; }},
      {"cosine", [](auto& c) { c.train.lr_schedule = "cosine", c.train.lr_min = 0.001; }, false},
      {"lr_decay_steps",
       [](auto& c) { c.train.lr_schedule = "step", c.train.lr_decay_steps = {1}, c.train.lr_decay = 0.5; }, false},
      {"lr_decay_every",
       [](auto& c) { c.train.lr_schedule = "step", c.train.lr_decay_every = 1, c.train.lr_decay = 0.5; }, false},
  };
  keys.push_back({"linear", [](auto& c) { c.train.lr_schedule = "linear"; }, false});
  keys.push_back(
      {"lr_decay_epochs", [](auto& c) { c.train.lr_schedule = "step", c.train.lr_decay_epochs = {1}; }, false});
  if (optimizer == "momentum") {
    keys.push_back({"momentum", [](auto& c) { c.train.momentum = 0.5; }, false});
    keys.push_back({"nesterov", [](auto& c) { c.train.nesterov = true; }});
  }
  if (optimizer == "rmsprop") {
    keys.push_back({"rms_alpha", [](auto& c) { c.train.rms_alpha = 0.5; }});
    keys.push_back({"eps", [](auto& c) { c.train.eps = 0.1; }});
  }
  if (is_adam) {
    keys.push_back({"beta1", [](auto& c) { c.train.beta1 = 0.5; }, false});
    keys.push_back({"beta2", [](auto& c) { c.train.beta2 = 0.9; }, false});
    keys.push_back({"eps", [](auto& c) { c.train.eps = 0.1; }});
  }
  return keys;
}

class StepEqualsTrain : public testing::TestWithParam<std::string> {};

TEST_P(StepEqualsTrain, WithEveryKeyOfTheOptimizer) {
  config::Config config = small_run();
  config.train.optimizer = GetParam();
  config.train.eps = 1e-2;  // large: what scales a gradient shows in Adam's first step only beside it
  const storage::TensorMap plain = expect_step_equals_train(config, "no key");
  for (const Key& key : keys_of(GetParam())) {
    config::Config changed = config;
    key.change(changed);
    const storage::TensorMap found = expect_step_equals_train(changed, key.name);
    if (key.shows) {
      EXPECT_FALSE(are_equal(found, plain)) << key.name << " did nothing";
    }
    if (key.name == "clip_norm above the norm") {
      EXPECT_TRUE(are_equal(found, plain)) << "a gradient that is short enough was scaled";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, StepEqualsTrain, testing::Values("sgd", "momentum", "rmsprop", "adam", "adamw"),
                         [](const auto& param_info) { return param_info.param; });

TEST(StepEqualsTrainInOtherShapes, OfTheModelThePlanAndTheNumbers) {
  const auto check = [](const std::string& name, const Change& change) {
    config::Config config = small_run();
    config.train.clip_norm = 0.05;
    change(config);
    (void)expect_step_equals_train(config, name);
  };
  check("batch-norm in a pipeline of two replicas", [](auto& c) {
    c.model.name = "resnet8", c.train.precision = "fp64";
    c.pipeline.stages = 2, c.pipeline.chunks = 2, c.pipeline.batch_norm = "deferred", c.replicas.local = 2;
  });
  check("dropout", [](auto& c) { c.model.name = "vit", c.model.patch_size = 4, c.model.dropout = 0.3; });
  check("another seed", [](auto& c) { c.train.seed = 99; });
}

// What a GPU's products and convolutions would round to; this process may have none.
TEST(NumberFormats, AreThoseOfTheKeyAndInAStepFloat32) {
  const auto allowed = [] {
    return std::pair{at::globalContext().allowTF32CuBLAS(), at::globalContext().allowTF32CuDNN()};
  };
  config::Config config = small_run();
  for (const bool tf32 : {true, false}) {
    config.device.tf32 = tf32;
    (void)make_setup(config);
    EXPECT_EQ(allowed(), std::pair(tf32, tf32));
  }
  const sluice::test::TempDir dir;
  config.device.tf32 = true;
  (void)after_step(config, dir);
  EXPECT_EQ(allowed(), std::pair(false, false)) << "its numbers are compared with another framework's";
}

// The rate of a step is that of the steps done before it.
TEST(LearningRate, OfStepNIsTheSchedulesAtNMinusOneAlsoAfterAResume) {
  const sluice::test::TempDir dir;
  config::Config config = small_run();
  config.train.steps = 6;
  config.train.warmup_steps = 4;
  config.train.lr_schedule = "cosine";
  (void)run_training(config, into(dir / "run"));
  config.checkpoint.every_steps = 0;
  (void)run_training(config, into(dir / "run", (dir / "run" / "checkpoints" / "step-3").string()));
  const optim::LrSchedule schedule = lr_schedule(make_setup(config));
  const auto steps = events_of(dir / "run", "step");
  ASSERT_EQ(steps.size(), 6U);
  for (std::int64_t done = 0; done < 6; ++done) EXPECT_EQ(steps[done].at("lr").get<double>(), schedule.at(done));
}

// Ten batches an epoch.
config::Config ten_batches() {
  config::Config config = small_run();
  config.data.samples = 10 * config.train.global_batch;
  config.train.steps = 100;
  return config;
}

TEST(LearningRate, LengthsMayBeInEpochs) {
  config::Config config = ten_batches();
  config.train.lr_schedule = "step";
  config.train.warmup_epochs = 0.5;
  config.train.lr_decay_epochs = {2, 5};
  config.train.lr_decay = 0.1;
  optim::LrSchedule schedule = lr_schedule(make_setup(config));
  EXPECT_EQ(schedule.warmup_steps, 5);
  EXPECT_EQ(schedule.decay_steps, (std::vector<std::int64_t>{20, 50}));
  EXPECT_NEAR(schedule.at(49), 0.1 * config.train.lr, 1e-15);
  EXPECT_NEAR(schedule.at(50), 0.01 * config.train.lr, 1e-15);
  config.train.lr_decay_epochs.clear();
  config.train.lr_decay_every_epochs = 3;
  config.train.lr_schedule = "exponential";
  schedule = lr_schedule(make_setup(config));
  EXPECT_NEAR(schedule.at(30), 0.1 * config.train.lr, 1e-15);
}

TEST(LearningRate, AWarmUpAsLongAsTheRunIsRefused) {
  config::Config config = ten_batches();
  config.train.warmup_epochs = 10;
  try {
    static_cast<void>(make_setup(config));
    FAIL() << "nothing was refused";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("train.warmup_epochs = 10 of 100 steps leaves none of the 100 steps"));
  }
}

}  // namespace
}  // namespace sluice::train::test
