// What a run that goes on says of learning rates that differ from those it was saved under.
#include "train/run/resume_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "train/setup/setup.h"

namespace sluice::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Setup setup_of(const config::Config& config, std::int64_t batches_per_epoch) {
  Setup setup{.config = config};
  setup.batches_per_epoch = setup.steps_per_epoch = batches_per_epoch;
  setup.total_steps = config.train.steps > 0 ? config.train.steps : config.train.epochs * batches_per_epoch;
  return setup;
}

class OtherRates : public testing::Test {
 protected:
  // Of a run of `saved` that goes on under `now` after so many epochs of 10 batches.
  static std::string warning(const config::Config& saved, const config::Config& now, std::int64_t epochs,
                             std::int64_t samples = 0) {
    RunState state{.progress = {.steps_done = 10 * epochs, .position = {.epoch = epochs}},
                   .config_toml = config::to_toml(saved)};
    if (samples > 0) state.data = DataIdentity{.train = {samples, "aa"}};
    train::Setup setup = setup_of(now, 10);
    const optim::LrSchedule before = saved_lr_schedule(setup, state, "here");
    setup.total_steps = total_steps_after(setup, state.progress);
    testing::internal::CaptureStderr();
    warn_of_other_rates(before, lr_schedule(setup), state.progress.steps_done, 0);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(OtherRates, OfAScheduleThatALongerRunStretchesAreSaidBeforeAndAfter) {
  for (const char* kind : {"cosine", "linear", "polynomial", "onecycle"}) {
    config::Config saved;
    saved.train.lr_schedule = kind;
    saved.train.lr = 0.05;
    saved.train.epochs = 20;
    config::Config now = saved;
    now.train.epochs = 40;
    EXPECT_EQ(warning(saved, saved, 20), "") << kind;
    EXPECT_EQ(warning(saved, saved, 10), "") << kind;
    EXPECT_THAT(
        warning(saved, now, 20),
        AllOf(HasSubstr("the learning rate changes from "), HasSubstr(" in step 200 to 0.0"), HasSubstr(" in step 201"),
              HasSubstr(kind), HasSubstr("ended at step 200 and now ends at step 400")));
    now.train.steps = 300;
    EXPECT_THAT(warning(saved, now, 20), HasSubstr("ended at step 200 and now ends at step 300"));
  }
  config::Config saved;
  saved.train.lr_schedule = "cosine";
  saved.train.lr = 0.05;
  saved.train.epochs = 20;
  config::Config now = saved;
  now.train.epochs = 40;
  EXPECT_THAT(warning(saved, now, 20), HasSubstr(" to 0.025 in step 201"));
  EXPECT_EQ(warning(saved, now, 0), "") << "there was no step";
}

TEST_F(OtherRates, AreNotSaidWhereTheLengthOfTheRunIsOfNoMatter) {
  for (const char* kind : {"constant", "step", "exponential", "plateau"}) {
    config::Config saved;
    saved.train.lr_schedule = kind;
    saved.train.epochs = 20;
    if (kind == std::string("step")) saved.train.lr_decay_epochs = {5, 30};
    if (kind == std::string("exponential")) saved.train.lr_decay_every_epochs = 5;
    config::Config now = saved;
    now.train.epochs = 2 * saved.train.epochs;
    EXPECT_EQ(warning(saved, now, 3), "") << kind;
    now.train.lr = 0.5 * saved.train.lr;
    EXPECT_THAT(warning(saved, now, 3), HasSubstr("the learning-rate settings differ from the checkpoint's")) << kind;
  }
}

// --accept-new-data: the same epochs are twice as many steps.
TEST_F(OtherRates, OfASetOfAnotherSizeAreSaid) {
  config::Config config;
  config.train.lr_schedule = "cosine";
  config.train.epochs = 20;
  config.train.global_batch = 10;
  EXPECT_EQ(warning(config, config, 5, 100), "");
  EXPECT_THAT(warning(config, config, 5, 50), HasSubstr("ended at step 125 and now ends at step 200"));
}

TEST_F(OtherRates, OfAServerWithASetOfAnotherSizeAreSaid) {
  config::Config config;
  config.replicas.sync = "ps";
  config.ps.policy = "bsp";
  config.ps.workers = 2;
  config.ps.worker_batch = 5;  // updates of 10 samples
  config.train.steps = 100;
  config.train.lr_schedule = "step";
  config.train.lr_decay_epochs = {4};
  EXPECT_EQ(warning(config, config, 3, 100), "");
  EXPECT_THAT(warning(config, config, 3, 50), HasSubstr("the learning rate changes from "));
}

}  // namespace
}  // namespace sluice::train
