// How a plan is chosen from costs: under a memory limit, with recomputation left open, and with costs kept from before.
#include "train/plan/choose_plan.h"
#include "train/plan/composition.h"
#include "train/plan/plan_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "device/memory.h"
#include "measure/cost_cache.h"
#include "memory_runs.h"
#include "storage/files.h"
#include "train/plan/choose_chunks.h"
#include "train/plan/memory_advice.h"
#include "train/setup/setup.h"
#include "train/setup/step_batch.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

config::Config config_of(int stages, int chunks) {
  config::Config config = test::small_config(stages, chunks);
  config.data.samples = 64;
  config.train.global_batch = 32;
  config.train.steps = 10;
  config.pipeline.partition.reset();
  config.pipeline.cost_cache = "off";
  return config;
}

class ChoosePlan : public test::WithCountedMemory {};

// Bytes of the largest device in a training step of the plan that the configuration gives.
std::uint64_t peak_of_step(const config::Config& config) {
  return std::ranges::max(test::train(config).use, {}, &device::MemoryUse::peak).peak;
}

TEST_F(ChoosePlan, OpenRecomputationIsTakenOnlyWhereTheMemoryNeedsIt) {
  config::Config config = config_of(2, 4);
  config.pipeline.partition = std::vector<int>{2, 3};
  config.pipeline.schedule = "gpipe";
  config.pipeline.recompute.all = "auto";
  EXPECT_FALSE(plan_request(make_setup(config)).needs_costs()) << "there is no limit";
  EXPECT_FALSE(tune::make_plan(plan_request(make_setup(config)), {}).recomputes(0));

  const auto peaks =
      tune::estimate_device_bytes(measure_memory_model(make_setup(config)), decide_plan(make_setup(config)));
  ASSERT_TRUE(peaks);
  ASSERT_GT(peaks->at(0), peaks->at(1) * 5 / 4) << "stage 0 keeps more";
  config.device.memory_limit.bytes = static_cast<std::int64_t>((peaks->at(0) + peaks->at(1)) / 2 * 10 / 9);
  const train::Setup limited = make_setup(config);
  EXPECT_TRUE(plan_request(limited).needs_costs());
  EXPECT_EQ(decide_plan(limited).recompute, (std::vector<bool>{true, false}));
  EXPECT_LE(peak_of_step(config), static_cast<std::uint64_t>(config.device.memory_limit.bytes));
}

TEST_F(ChoosePlan, AListSaysWhichStagesRecompute) {
  config::Config config = config_of(2, 4);
  config.pipeline.partition = std::vector<int>{2, 3};
  config.pipeline.recompute = {.all = "", .stages = {"none", "layer"}};
  EXPECT_EQ(decide_plan(make_setup(config)).recompute, (std::vector<bool>{false, true}));
  config.device.memory_limit.bytes = 1 << 30;
  EXPECT_EQ(decide_plan(make_setup(config)).recompute, (std::vector<bool>{false, true})) << "it is settled";
  EXPECT_EQ(recompute_choice(decide_plan(make_setup(config))), config.pipeline.recompute);
}

TEST_F(ChoosePlan, TheCutFollowsTheMemory) {
  // In time the layers are alike; the first one keeps so much that it must be alone.
  config::Config config = config_of(2, 4);
  const train::Setup free = make_setup(config);
  std::vector<LayerCost> costs(free.layers, {.forward = {.b_s = 1}, .saved_bytes = {.per_sample = 100}});
  costs[0].saved_bytes.per_sample = 10'000;
  EXPECT_EQ(tune::make_plan(plan_request(free), costs).partition.layers_per_stage, (std::vector<int>{2, 3}));
  config.device.memory_limit.bytes = 8 * 2 * 10'050 / 9 * 10;  // two micro-batches of 8 in flight
  EXPECT_EQ(tune::make_plan(plan_request(make_setup(config)), costs).partition.layers_per_stage,
            (std::vector<int>{1, 4}));
}

TEST_F(ChoosePlan, OpenChunksAreAsManyAsMakeACutFit) {
  config::Config config = config_of(2, 2);  // 16 samples a micro-batch
  config.pipeline.chunks = std::nullopt;
  const std::vector<LayerCost> costs(5, {.forward = {.b_s = 1}, .saved_bytes = {.per_sample = 100}});
  EXPECT_EQ(tune::make_plan(plan_request(make_setup(config)), costs).chunks, 2);
  config.device.memory_limit.bytes = 4 * 2 * 3 * 100 * 10 / 9 + 10;  // two micro-batches of 4 in flight, three layers
  EXPECT_EQ(tune::make_plan(plan_request(make_setup(config)), costs).chunks, 8);
}

TEST_F(ChoosePlan, WhatDoesNotFitIsWarnedOfAndTriedWithTheLeast) {
  config::Config config = config_of(2, 4);
  config.device.memory_limit.bytes = 1000;
  std::vector<LayerCost> costs(5, {.forward = {.b_s = 1}, .saved_bytes = {.per_sample = 100}});
  costs[4].saved_bytes.per_sample = 5000;
  testing::internal::CaptureStderr();
  const Plan plan = tune::make_plan(plan_request(make_setup(config)), costs);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("no partition into 2 stages is estimated to fit 900 B per slot"),
                    HasSubstr("pipeline.recompute = \"auto\"")));
  EXPECT_EQ(plan.partition.layers_per_stage, (std::vector<int>{4, 1}));
}

TEST(StepOverheads, OfAProfileAreByBorder) {
  config::Config config = config_of(2, 4);
  config.pipeline.schedule = "zb-v";  // devices 0 1 1 0: stages 1 and 2 lie on one
  config.replicas.local = 2;
  config.replicas.bucket_mb = 2;
  const train::Setup setup = make_setup(config);
  const profiler::LayerProfile profile{
      .stage_links = {{0, 1, "cpu:0", "cpu:1", {.latency_s = 1}}, {2, 3, "cpu:1", "cpu:0", {.latency_s = 3}}},
      .all_reduces = {profiler::AllReduceLink{.local_replicas = 2, .cost = {.bytes_per_s = 7}}},
      .update = AffineCost{.a_s = 5}};
  const tune::StepOverheads costs = step_overheads(setup, profile);
  ASSERT_EQ(costs.borders.size(), 4U);
  EXPECT_EQ(costs.borders[0].latency_s, 1);
  EXPECT_EQ(costs.borders[1].latency_s, 0);
  EXPECT_EQ(costs.borders[2].latency_s, 3);
  EXPECT_EQ(costs.all_reduce->bytes_per_s, 7);
  EXPECT_EQ(costs.bucket_bytes, 2 << 20);
  EXPECT_EQ(costs.update->a_s, 5);
  EXPECT_EQ(costs.updaters, 2) << "replicas on CPUs share the weights";
  EXPECT_TRUE(step_overheads(setup, {}).borders.empty());

  std::vector<std::pair<int, int>> borders;
  for (const profiler::StageLink& link : measure_borders(setup)) borders.emplace_back(link.from_stage, link.to_stage);
  EXPECT_EQ(borders, (std::vector<std::pair<int, int>>{{0, 1}, {2, 3}}));
}

// Between stages that share memory nothing is copied, however slow a profile says that it was.
TEST(PlanByCosts, OnCpusNoBorderCounts) {
  const train::Setup setup = make_setup(config_of(2, 4));
  const std::vector<double> seconds{9.6, 0.4, 0.4, 4.8, 4.8};
  std::vector<LayerCost> costs;
  for (const double s : seconds) costs.push_back({.forward = {.a_s = s}, .output_bytes = 1});
  costs[1].output_bytes = 400;
  const std::vector<profiler::StageLink> slow{{0, 1, "cpu:0", "cpu:1", {.bytes_per_s = 10}}};
  EXPECT_EQ(plan_by_costs(setup, costs, {}).partition.layers_per_stage, (std::vector<int>{2, 3}));
  EXPECT_EQ(plan_by_costs(setup, costs, slow).partition.layers_per_stage, (std::vector<int>{2, 3}));
  EXPECT_NE(tune::make_plan(plan_request(setup), costs, step_overheads(setup, {.stage_links = slow})).partition,
            (Partition{{2, 3}}))
      << "or the test shows nothing";
}

TEST(EstimateChunks, SaysWhatFitsTheLimit) {
  const tune::MemoryModel model{
      .layers = std::vector<LayerCost>(2, {.saved_bytes = {.per_sample = 100}, .transformed_bytes = 1000})};
  const Plan plan{.partition = {{2}}, .global_batch = 8};  // 1600 + 1000; with two micro-batches 800 + 2000
  const auto fit = [&](std::uint64_t limit) {
    std::vector<bool> each;
    for (const tune::ChunkCandidate& candidate : tune::estimate_chunks(model, plan, 1, 2, limit))
      each.push_back(candidate.fits);
    return each;
  };
  EXPECT_EQ(fit(2599), (std::vector{false, false}));
  EXPECT_EQ(fit(2700), (std::vector{true, false}));
  EXPECT_EQ(fit(2800), (std::vector{true, true}));
  EXPECT_EQ(fit(0), (std::vector{true, true})) << "no limit";
}

TEST(DescribeBalance, SaysHowFarEachStageIsFromTheMean) {
  const std::vector<LayerCost> costs{{.forward = {.b_s = 1e-3}}, {.forward = {.b_s = 3e-3}}};
  EXPECT_EQ(tune::describe_balance(costs, {.partition = {{1, 1}}}, 2),
            "measured time of each stage for a micro-batch of 2 samples (difference from the mean): stage 0 2.00 ms "
            "(-50.0 %), stage 1 6.00 ms (+50.0 %)");
}

TEST(DescribeBalance, SaysItOfDevicesToo) {
  std::vector<LayerCost> costs;
  for (const double seconds : {1e-3, 2e-3, 3e-3, 6e-3}) costs.push_back({.forward = {.b_s = seconds}});
  const Plan plan{.partition = {{1, 1, 1, 1}}, .chunks = 4, .schedule = "zb-v", .virtual_stages = 2};
  EXPECT_THAT(tune::describe_balance(costs, plan, 1),
              EndsWith("stage 2 3.00 ms (+0.0 %), stage 3 6.00 ms (+100.0 %); device 0 7.00 ms (+16.7 %), "
                       "device 1 5.00 ms (-16.7 %)"));
}

// A folder of its own, removed at the end.
class CostCache : public ChoosePlan {
 protected:
  CostCache() : config_(config_of(2, 4)) {
    fs::remove_all(folder_);
    config_.pipeline.cost_cache = folder_.string();
  }
  ~CostCache() override { fs::remove_all(folder_); }

  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(folder_))
      for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  // What was kept, but with a first layer that takes longer than all others.
  void slow_down_the_first_layer() const {
    profiler::LayerProfile profile = profiler::read_profile(files().at(0));
    for (profiler::LayerTimes& times : profile.layers[0].times) times.forward_s = 100;
    profiler::set_costs(profile.layers[0]);
    storage::write_text_atomically(files().at(0), profiler::to_json_text(profile));
  }
  [[nodiscard]] int layers_of_stage_0() const {
    return decide_plan(make_setup(config_)).partition.layers_per_stage.front();
  }

  fs::path folder_ = fs::temp_directory_path() / ("sluice_cost_cache_" + std::to_string(::getpid()));
  config::Config config_;
};

TEST_F(CostCache, CostsAreMeasuredOnceAndUsedAgain) {
  const int measured = layers_of_stage_0();
  ASSERT_EQ(files().size(), 1U);
  slow_down_the_first_layer();
  EXPECT_EQ(layers_of_stage_0(), 1);
  ASSERT_GT(measured, 1) << "or the test shows nothing";
  // Another size of a micro-batch, another precision: other costs.
  config_.pipeline.chunks = 2;
  EXPECT_GT(layers_of_stage_0(), 1);
  config_.train.precision = "fp64";
  EXPECT_GT(layers_of_stage_0(), 1);
  EXPECT_EQ(files().size(), 3U);
}

// From one micro-batch to more, transformed weights become permanent.
TEST_F(CostCache, NumbersOfChunksThatNeedMoreThanThePlanAllowsAreNotTried) {
  config_ = config_of(1, 1);
  config_.pipeline.cost_cache = folder_.string();
  config_.pipeline.chunks = std::nullopt;
  config_.pipeline.recompute.all = "auto";
  config_.device.memory_limit.bytes = std::int64_t{1} << 30;
  const train::Setup setup = make_setup(config_);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  data::Loader loader(*setup.train_set, train_loader_options(setup));
  const engine::StepBatch batch = as_step_batch(*loader.next(), *setup.task);
  EXPECT_THAT(choose_chunks(setup, engine, batch).why, HasSubstr(", 4: "));
  profiler::LayerProfile profile = profiler::read_profile(files().at(0));
  for (profiler::MeasuredLayer& layer : profile.layers) layer.cost.transformed_bytes = 1 << 30;
  storage::write_text_atomically(files().at(0), profiler::to_json_text(profile));
  const ChunkChoice choice = choose_chunks(setup, engine, batch);
  EXPECT_THAT(choice.why, MatchesRegex("1: [0-9.]+ ms"));
  EXPECT_EQ(choice.left_out, "; 2 and 4 were left out: estimated not to fit the memory");
}

TEST_F(CostCache, AFileThatIsBrokenOrOfAnotherBuildIsMeasuredAgain) {
  (void)layers_of_stage_0();
  slow_down_the_first_layer();
  const fs::path file = files().at(0);
  profiler::LayerProfile of_another_build = profiler::read_profile(file);
  of_another_build.fingerprint.sluice = "1 bytes of 1";
  storage::write_text_atomically(file, profiler::to_json_text(of_another_build));
  EXPECT_GT(layers_of_stage_0(), 1);
  std::ofstream(file) << "{";
  EXPECT_GT(layers_of_stage_0(), 1);
  EXPECT_EQ(profiler::read_profile(file).layers.size(), 5U) << "it was replaced";
}

TEST_F(CostCache, NothingIsKeptOfABusyMachineAndWhatIsKeptIsNamedWithItsAgeAndQuality) {
  const train::Setup setup = make_setup(config_);
  profiler::LayerProfile profile{.micro_batch = 4, .contenders = 2, .layers = std::vector<profiler::MeasuredLayer>(5)};
  const auto keep = [&](double slowdown) {
    for (profiler::MeasuredLayer& layer : profile.layers) layer.cost = {.forward = {.b_s = 1e-3}, .slowdown = slowdown};
    measure::keep_profile(config_.pipeline.cost_cache, workload_of(setup), profile);
    return measure::find_profile(config_.pipeline.cost_cache, workload_of(setup));
  };
  testing::internal::CaptureStderr();
  EXPECT_FALSE(keep(4.5).has_value());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("2 devices slow each other down 4.5 times"));
  EXPECT_TRUE(files().empty());
  const auto kept = keep(1.5);
  ASSERT_TRUE(kept.has_value());
  EXPECT_THAT(kept->source,
              AllOf(HasSubstr(files().at(0).string()), HasSubstr(" (measured "), HasSubstr(" ago: slow-down 1.50)")));
}

TEST_F(CostCache, AFolderThatCannotBeWrittenIsNoFailure) {
  std::ofstream(folder_.string()) << "a file";
  testing::internal::CaptureStderr();
  EXPECT_GT(layers_of_stage_0(), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot save the measured layer costs: "));
}

TEST_F(CostCache, OffKeepsNothingAndAutoIsInTheUsersCacheFolder) {
  config_.pipeline.cost_cache = "off";
  EXPECT_FALSE(measure::cost_cache_folder(config_.pipeline.cost_cache).has_value());
  config_.pipeline.cost_cache = "auto";
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", "/caches", 1), 0);
  EXPECT_EQ(measure::cost_cache_folder(config_.pipeline.cost_cache), fs::path("/caches/sluice/costs"));
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", "relative", 1), 0);
  ASSERT_EQ(::setenv("HOME", "/home/someone", 1), 0);
  EXPECT_EQ(measure::cost_cache_folder(config_.pipeline.cost_cache), fs::path("/home/someone/.cache/sluice/costs"));
}

}  // namespace
}  // namespace sluice::train
