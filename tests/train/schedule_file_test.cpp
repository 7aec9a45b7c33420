// pipeline.order: what it settles, what it refuses, and which text a resumed run goes on with.
#include "train/setup/schedule_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "core/plan.h"
#include "support/files.h"
#include "train/plan/choose_plan.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

using sluice::test::error_of;
using sluice::test::spill;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kTwoDevices = "# mine\n0F1 0F0 0B1 0B0\n1F1 1B1 1F0 1B0\n";
constexpr const char* kTwoDevicesPlain = "schedule=custom stages=2 micro_batches=2\n0F1 0F0 0B1 0B0\n1F1 1B1 1F0 1B0\n";

class OrderFile : public testing::Test {
 protected:
  OrderFile() {
    spill(file_, kTwoDevices);
    config_.device.list.choice = "cpu";
    config_.data.name = "shapes";
    config_.data.samples = 72;
    config_.train.global_batch = 16;
    config_.pipeline.order = file_.string();
    config_.pipeline.partition = std::vector<int>{2, 3};
  }

  std::string refused(const std::function<void(config::Config&)>& change) {
    config::Config config = config_;
    change(config);
    return error_of<ConfigError>([&] { return make_setup(config).layers; });
  }

  sluice::test::TempDir folder_;
  std::filesystem::path file_ = folder_ / "mine.txt";
  config::Config config_;
};

TEST_F(OrderFile, SettlesWhatIsLeftAtItsDefault) {
  const train::Setup setup = make_setup(config_);
  EXPECT_EQ(setup.config.pipeline.stages, 2);
  EXPECT_EQ(setup.config.pipeline.chunks, 2);
  EXPECT_EQ(virtual_stages(setup.config), 1);
  EXPECT_FALSE(chunks_are_open(setup.config));
  EXPECT_EQ(setup.devices.size(), 2U);
  const Plan plan = tune::make_plan(plan_request(setup), {});
  EXPECT_EQ(plan.schedule, Plan::kFromFile);
  EXPECT_EQ(plan.schedule_text, kTwoDevicesPlain) << "its comment is nobody's business";
  config_.pipeline.chunks = std::nullopt;
  EXPECT_EQ(make_setup(config_).config.pipeline.chunks, 2) << "there is nothing to measure";
  EXPECT_EQ(make_setup(setup.config).config, setup.config) << "what a run directory keeps";
}

TEST_F(OrderFile, SettlesSeveralStagesADevice) {
  spill(file_, "0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n");
  config_.pipeline.partition = std::vector<int>{1, 1, 1, 2};
  const train::Setup setup = make_setup(config_);
  EXPECT_EQ(setup.config.pipeline.stages, 2);
  EXPECT_EQ(virtual_stages(setup.config), 2);
}

TEST_F(OrderFile, RefusesWhatContradictsIt) {
  EXPECT_THAT(refused([](auto& c) { c.pipeline.chunks = 8; }),
              HasSubstr("mine.txt\" has 2 micro-batches, but pipeline.chunks = 8; remove pipeline.chunks"));
  EXPECT_THAT(refused([](auto& c) { c.pipeline.stages = 3, c.pipeline.partition.reset(); }),
              HasSubstr("has 2 devices, but pipeline.stages = 3"));
  EXPECT_THAT(refused([](auto& c) { c.pipeline.virtual_stages = 2; }),
              HasSubstr("has 1 stage, but pipeline.virtual = 2"));
  EXPECT_THAT(refused([](auto& c) { c.train.micro_batch = 4; }),
              HasSubstr("train.micro_batch = 4 makes 4 micro-batches a step, but pipeline.order has 2"));
  EXPECT_THAT(refused([](auto& c) { c.pipeline.partition = std::vector<int>{5}; }), HasSubstr("pipeline.partition"));
  EXPECT_THAT(refused([](auto& c) { c.pipeline.schedule = "gpipe"; }), HasSubstr("the file replaces the schedule"));
  EXPECT_THAT(refused([](auto& c) { c.device.list = {.choice = "", .names = {"cpu:0"}}; }),
              AllOf(HasSubstr("sets pipeline.stages = 2"), HasSubstr("device.list names 1 devices")));
  config_.train.micro_batch = 8;
  EXPECT_NO_THROW((void)make_setup(config_)) << "two of them make the batch";
}

TEST_F(OrderFile, IsTheFirstProcessesAlone) {
  const std::string schedule_text = make_setup(config_).schedule_text;
  std::filesystem::remove(file_);
  train::Setup other = make_setup(config_, {.rank = 1, .processes = 2});
  EXPECT_EQ(other.schedule_text, "");
  settle_schedule(other, schedule_text);
  settle_process(other, other.process);
  EXPECT_EQ(other.schedule_text, schedule_text);
  EXPECT_EQ(other.devices.size(), 2U);
  EXPECT_THAT(refused([](auto&) {}), AllOf(HasSubstr("pipeline.order: "), HasSubstr("mine.txt: cannot be read")));
}

TEST_F(OrderFile, OfACheckpointHoldsWhereTheNameIsTheSame) {
  const train::Setup setup = make_setup(config_);
  const nlohmann::json state =
      RunState{.plan = tune::make_plan(plan_request(setup), {}), .config_toml = config::to_toml(setup.config)}
          .to_json();
  const auto warned = [&](const std::optional<std::string>& expected) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(kept_schedule(config_, state, "run/step-17"), expected);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warned(setup.schedule_text), "");
  spill(file_, std::string("# another comment\n") + kTwoDevices);
  EXPECT_EQ(warned(setup.schedule_text), "") << "the order is the same";
  spill(file_, "0F0 0B0\n1F0 1B0\n");
  EXPECT_THAT(warned(setup.schedule_text),
              HasSubstr("has changed since run/step-17 was written (the file has another schedule "
                        "now); the saved schedule is used"));
  std::filesystem::remove(file_);
  EXPECT_THAT(warned(setup.schedule_text), HasSubstr("cannot be read"));
  config_.pipeline.order = (folder_ / "other.txt").string();
  EXPECT_EQ(warned(std::nullopt), "");
  config_.pipeline.order.clear();
  EXPECT_EQ(warned(std::nullopt), "");
}

}  // namespace
}  // namespace sluice::train
