// Which run and which checkpoint a resume means.
#include "train/run/resume_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include <ATen/ATen.h>

#include "core/error.h"
#include "storage/checkpoint_store.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// An empty directory that is the current one while the object lives.
class WorkingDirectory {
 public:
  WorkingDirectory() : old_(fs::current_path()) {
    std::string pattern = (fs::temp_directory_path() / "sluice-resume-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    fs::current_path(dir_);
  }
  ~WorkingDirectory() {
    fs::current_path(old_);
    fs::remove_all(dir_);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;

 private:
  fs::path old_, dir_;
};

void save(const fs::path& run, std::int64_t step) {
  storage::CheckpointStore(run / "checkpoints", 9).save(step, {.model = {{"w", at::ones({2})}}, .optimizer = {}});
}

class ChooseResume : public testing::Test {
 protected:
  WorkingDirectory here_;
};

TEST_F(ChooseResume, NothingAskedForIsANewRun) {
  save("run", 4);
  const ResumeChoice choice = choose_resume("", "run", "quick", {});
  EXPECT_EQ(choice.run_dir, "run");
  EXPECT_EQ(choice.from, "");
  EXPECT_FALSE(choice.continues_run_dir);
}

TEST_F(ChooseResume, AutoLooksIntoTheRunDirectoryWhateverItHolds) {
  for (const bool saved : {false, true}) {
    if (saved) save("run", 4);
    const ResumeChoice choice = choose_resume("auto", "run", "quick", {});
    EXPECT_EQ(choice.run_dir, "run");
    EXPECT_EQ(choice.from, "run");
    EXPECT_TRUE(choice.continues_run_dir);
  }
}

// A run with a checkpoint at step 4, which was made from `config_file` with these settings.
void make_run(const std::string& name, const fs::path& config_file, const config::Config& config = {}) {
  save(fs::path("runs") / name, 4);
  std::ofstream(fs::path("runs") / name / "config.toml") << origin_line(config_file) << "\n\n"
                                                         << config::to_toml(config);
}

TEST_F(ChooseResume, AutoWithoutADirectoryTakesTheNewestRunOfThatConfiguration) {
  EXPECT_EQ(choose_resume("auto", "", "quick", {}).run_dir, "");
  make_run("quick-20260101-000000", "quick");
  make_run("quick-20260102-000000", "quick");
  make_run("other-20260103-000000", "other");
  fs::create_directories("runs/quick-20260104-000000");  // died before its first checkpoint
  const ResumeChoice choice = choose_resume("auto", "", "quick", {});
  EXPECT_EQ(choice.run_dir, "runs/quick-20260102-000000");
  EXPECT_EQ(choice.from, choice.run_dir);
  EXPECT_TRUE(choice.continues_run_dir);
}

TEST_F(ChooseResume, AutoWithoutADirectoryLeavesRunsOfAnotherFileOfThatNameAlone) {
  make_run("quick-20260101-000000", "mine/quick.toml");
  make_run("quick-20260102-000000", "theirs/quick.toml");
  const auto chosen = [](const fs::path& config_file) { return choose_resume("auto", "", config_file, {}).run_dir; };
  EXPECT_EQ(chosen("mine/quick.toml"), "runs/quick-20260101-000000");
  EXPECT_EQ(chosen(fs::absolute("x/../theirs/quick.toml")), "runs/quick-20260102-000000");
  EXPECT_EQ(chosen("quick.toml"), "");
  save("runs/quick-20260103-000000", 4);
  EXPECT_EQ(chosen("quick.toml"), "") << "nothing says what it was made with";
  std::ofstream("runs/quick-20260103-000000/config.toml")
      << "[train]\n";  // an earlier version does not say from which file
  EXPECT_EQ(chosen("quick.toml"), "runs/quick-20260103-000000");
}

// for lr in ...; do sluice train base.toml --set train.lr=$lr --resume auto; done
TEST_F(ChooseResume, AutoWithoutADirectoryLeavesRunsThatLearnSomethingElseAlone) {
  make_run("base-20260101-000000", "base.toml");
  make_run("base-20260102-000000", "base.toml");
  const auto chosen = [](void (*change)(config::Config&)) {
    config::Config config;
    change(config);
    return choose_resume("auto", "", "base.toml", config).run_dir;
  };
  const std::pair<const char*, void (*)(config::Config&)> others[]{
      {"train.lr", [](auto& c) { c.train.lr = 0.25; }},
      {"train.seed", [](auto& c) { c.train.seed = 5; }},
      {"train.global_batch", [](auto& c) { c.train.global_batch = 5; }},
      {"train.lr_schedule", [](auto& c) { c.train.lr_schedule = "cosine"; }},
      {"model.name", [](auto& c) { c.model.name = "vit"; }},
      {"model.dropout", [](auto& c) { c.model.dropout = 0.5; }},
      {"model.weights", [](auto& c) { c.model.weights = "theirs.safetensors"; }},
      {"data.limit", [](auto& c) { c.data.limit = 5; }},
      {"data.flip", [](auto& c) { c.data.flip = !c.data.flip; }},
      {"device.tf32", [](auto& c) { c.device.tf32 = !c.device.tf32; }},
      {"pipeline.batch_norm", [](auto& c) { c.pipeline.batch_norm = "deferred"; }},
      {"replicas.sync", [](auto& c) { c.replicas.sync = "ps", c.ps.clock = "virtual"; }},
      {"freeze.policy", [](auto& c) { c.freeze.policy = "linear"; }},
      {"freeze.cache_precision", [](auto& c) { c.freeze.cache_precision = "bf16"; }},
      {"ps.partitions", [](auto& c) { c.ps.partitions = 4; }},
      {"pipeline.chunks", [](auto& c) { c.pipeline.chunks = 4; }},
      {"train.micro_batch", [](auto& c) { c.train.micro_batch = 4; }},
      {"replicas.local", [](auto& c) { c.replicas.local = 2; }}};
  for (const auto& [key, change] : others) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(chosen(change), "") << key;
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("--resume auto skips runs/base-20260102-000000 and 1 older run: "), HasSubstr(key),
                      HasSubstr(". To continue it, pass --resume runs/base-20260102-000000.")))
        << key;
  }
  const std::pair<const char*, void (*)(config::Config&)> same[]{
      {"as it was", [](auto&) {}},
      {"longer", [](auto& c) { c.train.epochs = 500, c.train.steps = 9999; }},
      {"another shape with as large micro-batches", [](auto& c) { c.pipeline.stages = 3; }},
      {"kept features", [](auto& c) { c.freeze.cache_dir = "elsewhere", c.freeze.cache_bytes.bytes = 7; }},
      {"how it is read", [](auto& c) { c.data.workers = 7, c.data.broken = "skip"; }},
      {"what is recorded", [](auto& c) { c.log.every = 3, c.checkpoint.keep = 9, c.train.eval_limit = 5; }}};
  for (const auto& [what, change] : same) EXPECT_EQ(chosen(change), "runs/base-20260102-000000") << what;
}

// for c in 1 4 8; do sluice train base.toml --set pipeline.chunks=$c --resume auto; done
TEST_F(ChooseResume, AutoCountsWhatSizesMicroBatchesIfTheModelHasBatchNorms) {
  const auto is_taken = [](const std::string& model, const std::string& mode, void (*change)(config::Config&)) {
    config::Config config;
    config.model.name = model;
    config.pipeline.batch_norm = mode;
    make_run("base-20260101-000000", "base.toml", config);
    change(config);
    return !choose_resume("auto", "", "base.toml", config).run_dir.empty();
  };
  const auto another_shape = [](config::Config& c) {
    c.pipeline.stages = 3, c.replicas.local = 2, c.pipeline.chunks = 4;
  };
  for (const char* model : {"vit", "mlp", "vgg11", "gpt2", "convnext"})
    EXPECT_TRUE(is_taken(model, "micro", another_shape)) << model;
  for (const char* mode : {"micro", "deferred", "sync"}) {
    for (const char* model : {"resnet18", "vgg11_bn"}) {
      EXPECT_FALSE(is_taken(model, mode, [](auto& c) { c.pipeline.chunks = 4; })) << model << " " << mode;
      EXPECT_FALSE(is_taken(model, mode, [](auto& c) { c.train.micro_batch = 8; })) << model << " " << mode;
      EXPECT_EQ(is_taken(model, mode, [](auto& c) { c.replicas.local = 2; }), std::string(mode) == "sync") << mode;
      EXPECT_TRUE(is_taken(model, mode, [](auto& c) { c.pipeline.stages = 2; })) << model << " " << mode;
    }
  }
}

// A schedule file settles the chunks, which the run's config.toml has.
TEST_F(ChooseResume, AutoKnowsTheRunOfAnOrderAgain) {
  config::Config config;
  config.model.name = "resnet18";
  config.pipeline.order = "mine.txt";  // gone since
  config::Config as_run = config;
  as_run.pipeline.stages = 2;
  as_run.pipeline.chunks = 4;
  make_run("base-20260101-000000", "base.toml", as_run);
  EXPECT_EQ(choose_resume("auto", "", "base.toml", config).run_dir, "runs/base-20260101-000000");
  config.pipeline.order = "another.txt";
  EXPECT_EQ(choose_resume("auto", "", "base.toml", config).run_dir, "") << "it cannot be read";
}

TEST_F(ChooseResume, AutoCountsTheEvaluationsThatLowerTheRate) {
  const std::pair<const char*, void (*)(config::Config&)> changes[]{
      {"train.eval_every_steps", [](auto& c) { c.train.eval_every_steps = 5; }},
      {"train.eval_every_epochs", [](auto& c) { c.train.eval_every_epochs = 5; }},
      {"train.eval_limit", [](auto& c) { c.train.eval_limit = 5; }}};
  for (const char* schedule : {"plateau", "cosine"}) {
    for (const auto& [key, change] : changes) {
      config::Config config;
      config.train.lr_schedule = schedule;
      make_run("base-20260101-000000", "base.toml", config);
      change(config);
      EXPECT_EQ(choose_resume("auto", "", "base.toml", config).run_dir.empty(), std::string(schedule) == "plateau")
          << schedule << " " << key;
    }
  }
}

TEST_F(ChooseResume, AutoGoesOnWithAnOlderRunOfTheSameSettings) {
  config::Config other;
  other.train.lr = 0.25;
  make_run("base-20260101-000000", "base.toml");
  make_run("base-20260102-000000", "base.toml", other);
  EXPECT_EQ(choose_resume("auto", "", "base.toml", {}).run_dir, "runs/base-20260101-000000");
  EXPECT_EQ(choose_resume("auto", "", "base.toml", other).run_dir, "runs/base-20260102-000000");
  EXPECT_EQ(choose_resume("auto", "runs/base-20260101-000000", "base.toml", other).run_dir, "runs/base-20260101-000000")
      << "--run-dir names it";
}

// A batch of a server's worker follows from other keys, and is written down when the run begins.
TEST_F(ChooseResume, AutoKnowsTheRunOfAParameterServerAgain) {
  config::Config config;
  config.replicas.sync = "ps";
  config.ps.workers = 2;
  config.train.steps = 100;
  config::Config as_run = config;
  settle_worker(as_run);
  ASSERT_NE(as_run, config);
  make_run("base-20260101-000000", "base.toml", as_run);
  EXPECT_EQ(choose_resume("auto", "", "base.toml", config).run_dir, "runs/base-20260101-000000");
  config.ps.policy = "asp";
  EXPECT_EQ(choose_resume("auto", "", "base.toml", config).run_dir, "");
}

// A job may copy its data to another folder each time.
TEST_F(ChooseResume, AutoKnowsTheSameDataInAnotherFolderAgain) {
  config::Config config;
  config.data.name = "shapes";
  config.data.samples = 20;
  config.data.path = "was/here";
  RunState state{.progress = {.steps_done = 8}, .plan = {.partition = {{5}}}, .config_toml = config::to_toml(config)};
  const auto [train, test] = open_sets(config);
  state.data = DataIdentity{identity_of(*train), identity_of(*test)};
  make_run("base-20260101-000000", "base.toml", config);
  const auto save_state = [&] {
    storage::CheckpointStore("runs/base-20260101-000000/checkpoints", 9)
        .save(8, {.model = {{"w", at::ones({2})}}, .optimizer = {}, .state = state.to_json()});
  };
  save_state();
  config.data.path = "is/there";
  EXPECT_EQ(choose_resume("auto", "", "base.toml", config).run_dir, "runs/base-20260101-000000");
  config::Config other = config;
  other.train.lr = 0.25;
  EXPECT_EQ(choose_resume("auto", "", "base.toml", other).run_dir, "") << "another rate as well as another folder";
  state.data->train.digest = "of others";
  save_state();
  EXPECT_EQ(choose_resume("auto", "", "base.toml", config).run_dir, "");
  EXPECT_EQ(choose_resume("auto", "", "base.toml", config, NewData::kAccepted).run_dir, "runs/base-20260101-000000");
}

TEST_F(ChooseResume, AutoSkipsARunOfOtherDataWhoseCheckpointsAreAllDamaged) {
  config::Config config;
  config.data.name = "shapes";
  config.data.path = "was/here";
  make_run("base-20260102-000000", "base.toml", config);
  std::ofstream("runs/base-20260102-000000/checkpoints/step-4/model.safetensors") << "torn";
  config.data.path = "is/there";
  make_run("base-20260101-000000", "base.toml", config);
  testing::internal::CaptureStderr();
  EXPECT_EQ(choose_resume("auto", "", "base.toml", config).run_dir, "runs/base-20260101-000000");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("--resume auto skips runs/base-20260102-000000: every checkpoint in "
                        "runs/base-20260102-000000/checkpoints is damaged"));
}

TEST_F(ChooseResume, ARunDirectoryGoesOnInItself) {
  save("run", 4);
  for (const char* name : {"run", "run/", "./run"}) {
    const ResumeChoice choice = choose_resume(name, "", "quick", {});
    EXPECT_TRUE(fs::equivalent(choice.from, "run")) << name;
    EXPECT_TRUE(fs::equivalent(choice.run_dir, "run")) << name;
    EXPECT_TRUE(choice.continues_run_dir) << name;
  }
}

TEST_F(ChooseResume, ACheckpointGoesOnInItsRunDirectory) {
  save("run", 4);
  const ResumeChoice choice = choose_resume("run/checkpoints/step-4/", "", "quick", {});
  EXPECT_TRUE(fs::equivalent(choice.from, "run/checkpoints/step-4"));
  EXPECT_TRUE(fs::equivalent(choice.run_dir, "run"));
  EXPECT_TRUE(choice.continues_run_dir);
}

TEST_F(ChooseResume, IntoAnotherDirectoryBeginsNewRecords) {
  save("run", 4);
  const ResumeChoice choice = choose_resume("run", "fork", "quick", {});
  EXPECT_EQ(choice.run_dir, "fork");
  EXPECT_EQ(choice.from, "run");
  EXPECT_FALSE(choice.continues_run_dir);
}

}  // namespace
}  // namespace sluice::train
