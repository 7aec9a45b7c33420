// Whole runs, seen by what they leave: resumed with other data, and with a run directory that goes away.
#include "train/run/train_run.h"
#include "train/setup/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "core/concat.h"
#include "data/idx_files.h"
#include "device/memory.h"
#include "train/run/resume.h"
#include "train_run_support.h"

namespace sluice::train::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// Images of 8x8 of which any can be told from any other.
struct Images {
  std::uint32_t train = 20;
  std::uint32_t test = 5;
  int changed_pixel = -1;  // of the training images
  int changed_label = -1;
  bool other_test = false;

  void write(const fs::path& folder) const {
    fs::create_directories(folder);
    write_split(folder, "train", train, changed_pixel, changed_label);
    write_split(folder, "t10k", test, other_test ? 3 : -1, -1);
  }

 private:
  static void write_split(const fs::path& folder, const std::string& name, std::uint32_t count, int pixel, int label) {
    data::Bytes pixels(std::size_t{count} * 64), labels(count);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 31 % 251);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::uint8_t>(i % 10);
    if (pixel >= 0) ++pixels[pixel];
    if (label >= 0) labels[label] = (labels[label] + 1) % 10;
    data::write_file(folder / (name + "-images-idx3-ubyte"), data::images_bytes(count, 8, 8, pixels));
    data::write_file(folder / (name + "-labels-idx1-ubyte"), data::labels_bytes(labels));
  }
};

// A run of mnist that has stopped after two of the three batches of its first epoch, to be resumed elsewhere.
class Resumed : public testing::Test {
 protected:
  Resumed() {
    Images{}.write(dir_ / "data");
    config_ = small_run();
    config_.data.name = "mnist";
    config_.data.path = dir_ / "data";
    config_.train.steps = 2;
    (void)run_training(config_, into(dir_ / "run"));
    config_.train.steps = 5;
  }

  // Where it wrote.
  fs::path resume(bool accept_new_data = false) {
    TrainRunOptions options = into(dir_ / concat("fork", ++forks_), dir_ / "run");
    options.accept_new_data = accept_new_data;
    (void)run_training(config_, options);
    return options.run_dir;
  }
  // [step, epoch, batch, batches] of each step.
  static std::vector<std::vector<int>> positions(const fs::path& run_dir) {
    std::vector<std::vector<int>> positions;
    for (const nlohmann::json& step : events_of(run_dir, "step"))
      positions.push_back({step.at("step"), step.at("epoch"), step.at("batch"), step.at("batches")});
    return positions;
  }

  sluice::test::TempDir dir_;
  config::Config config_;

 private:
  int forks_ = 0;
};

TEST_F(Resumed, WithTheSameDataGoesOnWhereItStopped) {
  const std::vector<std::vector<int>> expected{{3, 0, 2, 3}, {4, 1, 0, 3}, {5, 1, 1, 3}};
  const std::string other_test =
      "the 5 test samples of data set mnist differ from those of the checkpoint: evaluations from before";
  const auto text = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(positions(resume()), expected);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(text(), testing::Not(HasSubstr(other_test)));
  Images{.other_test = true}.write(dir_ / "data");  // changes no training
  EXPECT_THAT(text(), HasSubstr(other_test));
}

TEST_F(Resumed, WithOtherTrainingDataIsRefusedAndSaysWhatDiffers) {
  const std::string sizes = "data set mnist had 20 training samples when the checkpoint was written and has ";
  const std::string content = "the 20 training samples of data set mnist differ from those of the checkpoint";
  const std::string advice = "or pass --accept-new-data to continue with the new data";
  const std::vector<std::pair<Images, std::string>> cases{
      {{.train = 9}, sizes + "9 now"},  {{.train = 21}, sizes + "21 now"},         {{.changed_pixel = 777}, content},
      {{.changed_label = 13}, content}, {{.changed_pixel = 20 * 64 - 1}, content}, {{.changed_label = 19}, content}};
  for (const auto& [images, sentence] : cases) {
    images.write(dir_ / "data");
    EXPECT_THAT(sluice::test::error_of<CheckpointError>([&] { resume(); }),
                AllOf(HasSubstr(sentence), HasSubstr(advice)));
  }
  Images{}.write(dir_ / "data");
  config_.data.limit = 12;
  EXPECT_THAT(sluice::test::error_of<CheckpointError>([&] { resume(); }), HasSubstr(sizes + "12 now"));
  EXPECT_FALSE(fs::exists(dir_ / "fork1")) << "a run that was refused has left a directory";
}

TEST_F(Resumed, WithAcceptedDataGoesOnAtAPositionThatIsThere) {
  const std::vector<std::vector<int>> next_epoch_of_two{{3, 1, 0, 2}, {4, 1, 1, 2}, {5, 2, 0, 2}};
  const std::vector<std::vector<int>> next_epoch_of_four{{3, 1, 0, 4}, {4, 1, 1, 4}, {5, 1, 2, 4}};
  const std::vector<std::vector<int>> as_before{{3, 0, 2, 3}, {4, 1, 0, 3}, {5, 1, 1, 3}};
  Images{.train = 9}.write(dir_ / "data");
  const fs::path shorter = resume(/*accept_new_data=*/true);
  EXPECT_EQ(positions(shorter), next_epoch_of_two);
  EXPECT_THAT(sluice::test::slurp(shorter / "log.txt"), testing::Not(HasSubstr("cannot resume")));
  Images{.train = 30}.write(dir_ / "data");
  EXPECT_EQ(positions(resume(/*accept_new_data=*/true)), next_epoch_of_four);
  Images{.changed_pixel = 5}.write(dir_ / "data");
  EXPECT_EQ(positions(resume(/*accept_new_data=*/true)), as_before);
}

TEST_F(Resumed, WithAcceptedDataTrainsAsManyEpochsAsConfigured) {
  config_.train.steps = 0;
  config_.train.epochs = 3;
  const auto next_two_epochs = [](int batches) {
    std::vector<std::vector<int>> positions;
    for (int i = 0; i < 2 * batches; ++i) positions.push_back({3 + i, 1 + i / batches, i % batches, batches});
    return positions;
  };
  Images{.train = 9}.write(dir_ / "data");
  const fs::path shorter = resume(/*accept_new_data=*/true);
  EXPECT_EQ(positions(shorter), next_two_epochs(2));
  Images{.train = 30}.write(dir_ / "data");
  EXPECT_EQ(positions(resume(/*accept_new_data=*/true)), next_two_epochs(4));

  config_.train.epochs = 1;
  EXPECT_THAT(sluice::test::error_of<ConfigError>([&] { resume(/*accept_new_data=*/true); }),
              AllOf(HasSubstr("it is the last one"), HasSubstr("raise train.epochs")));
  config_.train.epochs = 3;

  // From a checkpoint of its own, where the data are no longer other ones.
  Images{.train = 9}.write(dir_ / "data");
  TrainRunOptions again = into(dir_ / "again", shorter / "checkpoints" / "step-4");
  (void)run_training(config_, again);
  const std::vector<std::vector<int>> last_epoch{{5, 2, 0, 2}, {6, 2, 1, 2}};
  EXPECT_EQ(positions(again.run_dir), last_epoch);
}

// The batch is all there is, and micro-batches stay as small as configured.
TEST_F(Resumed, WithAcceptedDataMakesNoLargerMicroBatches) {
  config_.train.global_batch = 1000;
  config_.train.micro_batch = 5;
  (void)run_training(config_, into(dir_ / "capped"));
  EXPECT_EQ(events_of(dir_ / "capped", "plan").at(0).at("chunks"), 4);
  Images{.train = 30}.write(dir_ / "data");
  config_.train.steps = 7;
  TrainRunOptions options = into(dir_ / "more", dir_ / "capped");
  options.accept_new_data = true;
  (void)run_training(config_, options);
  EXPECT_EQ(events_of(options.run_dir, "plan").at(0).at("chunks"), 6);
}

// Parameters and optimizer fit into the memory, and no number of chunks of 2000 samples does.
TEST(FailedPlanning, LeavesTheRunThatItWasToContinueAsItWas) {
  device::count_memory();
  const sluice::test::TempDir dir;
  config::Config config = small_run();
  config.data.samples = config.train.global_batch = 2000;
  config.pipeline.chunks = 1;
  config.train.steps = 2;
  const fs::path run = dir / "run";
  (void)run_training(config, into(run));
  const std::string written = sluice::test::slurp(run / "config.toml");
  config.train.steps = 3;
  config.device.memory_limit.bytes = 300 << 10;
  config.pipeline.stages = 2;
  config.pipeline.partition = std::vector<int>{2, 1};
  config.pipeline.chunks.reset();
  try {
    (void)run_training(config, into(run, run / "checkpoints" / "step-1"));
    ADD_FAILURE() << "it had room";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory) << error.what();
  }
  EXPECT_TRUE(fs::exists(run / "checkpoints" / "step-2"));
  EXPECT_EQ(sluice::test::slurp(run / "config.toml"), written);
}

TEST_F(Resumed, AnEarlierVersionsCheckpointIsTakenOnTrustAsFarAsItFits) {
  const train::Setup setup = make_setup(config_);
  const std::string saved = config::to_toml(config_);
  const RunState state{.progress = {.steps_done = 2, .position = {.epoch = 0, .batch = 3}}, .config_toml = saved};
  EXPECT_EQ(progress_in(setup, state, "here").position.batch, 3);
  const RunState beyond{.progress = {.steps_done = 2, .position = {.epoch = 0, .batch = 4}}, .config_toml = saved};
  EXPECT_THAT(sluice::test::error_of<CheckpointError>([&] { (void)progress_in(setup, beyond, "here"); }),
              HasSubstr("has 3 batches, but the checkpoint was written after batch 4 of an epoch"));
  EXPECT_EQ(progress_in(setup, beyond, "here", NewData::kAccepted).position.batch, 3);
  const RunState begun{.progress = {.steps_done = 1, .position = {.epoch = 0, .batch = 1}}, .config_toml = saved};
  EXPECT_EQ(progress_in(setup, begun, "here", NewData::kAccepted).position.batch, 1);
  train::Setup limited = make_setup(config_);
  limited.config.data.limit = 5;
  EXPECT_EQ(progress_in(limited, begun, "here", NewData::kAccepted).position.batch, 3) << "the epoch ends";
  const RunState at_an_end{.progress = {.steps_done = 3, .position = {.epoch = 1, .batch = 0}}, .config_toml = saved};
  EXPECT_EQ(progress_in(limited, at_an_end, "here", NewData::kAccepted).position.batch, 0) << "none had begun";
}

// Does `action` in another thread as soon as `condition` holds while `run` runs; it ends with `run`.
void meanwhile(const std::function<void()>& run, const std::function<bool()>& condition,
               const std::function<void()>& action) {
  const std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (condition()) return action();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  run();
}

std::string sentence_of_a_run_that_loses(const config::Config& config, const fs::path& run_dir, const fs::path& lost,
                                         const fs::path& sign) {
  return sluice::test::error_of<StorageError>([&] {
    meanwhile([&] { (void)run_training(config, into(run_dir)); }, [&] { return fs::exists(sign); },
              [&] { fs::rename(lost, concat(lost.string(), ".away")); });
  });
}

TEST(LostRunDir, IsNoticedAtACheckpointAndTheStateIsSavedOnceMore) {
  const sluice::test::TempDir dir;
  config::Config config = small_run();
  config.train.steps = 1'000'000;
  const fs::path run = dir / "run";
  const std::string sentence = sentence_of_a_run_that_loses(config, run, run, run / "checkpoints" / "step-2");
  EXPECT_THAT(sentence, AllOf(HasSubstr(run.string() + " was removed or renamed while the run wrote to it"),
                              HasSubstr("continue with --resume " + (run / "checkpoints" / "step-").string())));
  ASSERT_TRUE(fs::exists(run / "checkpoints")) << sentence;
  const std::string saved = sluice::test::names_in(run / "checkpoints").back();
  config.train.steps = std::stoll(saved.substr(saved.find('-') + 1)) + 2;
  (void)run_training(config, into(run, run));
  EXPECT_EQ(events_of(run, "summary").at(0).at("outcome"), "done");
}

TEST(LostRunDir, IsNoticedAtTheEndWhereNothingWasSavedBefore) {
  const sluice::test::TempDir dir;
  config::Config config = small_run();
  config.train.steps = 3000;
  config.train.eval_every_steps = 3000;
  config.checkpoint.every_steps = 0;
  const fs::path run = dir / "run";
  EXPECT_THAT(sentence_of_a_run_that_loses(config, run, run, run / "metrics.jsonl"),
              HasSubstr("the state after step "));
}

}  // namespace
}  // namespace sluice::train::test
