// What a configuration and a profile make of a step, by hand: predictions without a run (what_if.h), and of a run from
// a kept profile (step_predictor.h).
#include "train/plan/what_if.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "device/cpu_threads.h"
#include "measure/cost_cache.h"
#include "memory_runs.h"
#include "train/plan/predicted_server.h"
#include "train/plan/profile_overheads.h"
#include "train/plan/step_predictor.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

constexpr double kRounding = 1e-9;

// 16 samples for two stages of two layers in two replicas, each with two micro-batches.
config::Config hybrid() {
  config::Config config;
  config.train.global_batch = 16;
  config.pipeline.stages = 2;
  config.pipeline.partition = std::vector<int>{2, 2};
  config.pipeline.schedule = "gpipe";
  config.pipeline.chunks = 2;
  config.replicas.local = 2;
  return config;
}

// Of layers that take a millisecond a sample forward, and no time back.
profiler::LayerProfile profile_of(int layers) {
  profiler::LayerProfile profile{
      .fingerprint = {.cores = 4, .threads_per_device = 1, .device = "cpu:0"},
      .micro_batch = 4,
      .layers = std::vector<profiler::MeasuredLayer>(layers),
      .stage_links = {{0, 1, "cpu:0", "cpu:1", {.latency_s = 10e-3}}},
      .all_reduces = {{1, 2, {.latency_s = 3e-3}}, {2, 2, {.latency_s = 7e-3}}, {2, 1, {.latency_s = 8e-3}}},
      .update = AffineCost{.a_s = 2e-3},
      .update_together = AffineCost{.a_s = 4e-3},
      .step = profiler::StepSummary{.compute_deviation = 0.1, .other_s = 5e-3}};
  for (profiler::MeasuredLayer& layer : profile.layers) layer.cost = {.forward = {.b_s = 1e-3}, .gradient_bytes = 100};
  return profile;
}

// GPipe: three times a micro-batch of two layers, and the border there and back.
TEST(WhatIf, AStepIsTheSumOfWhatItsPartsCost) {
  const double compute = 3 * 2 * 4e-3 + 2 * 10e-3;
  const double slowest = 0.5641895835477563 * 0.1 * compute;  // the larger one of two normals
  const WhatIf answer = what_if(hybrid(), profile_of(4));
  EXPECT_NEAR(answer.step.all_reduce, 3e-3 + slowest, kRounding);
  EXPECT_NEAR(answer.step.seconds, compute + 3e-3 + slowest + 4e-3 + 5e-3, kRounding);
  EXPECT_NEAR(answer.samples_per_s, 16 / answer.step.seconds, 1e-6);
}

// One stage of two layers with 10 MiB of gradients each. They are whole at the end: a backward takes no time here.
TEST(WhatIf, GradientsAreSummedInBucketsOfAtMostTheConfiguredSize) {
  profiler::LayerProfile profile = profile_of(2);
  profile.step.reset();
  for (profiler::MeasuredLayer& layer : profile.layers) layer.cost.gradient_bytes = std::uint64_t{10} << 20;
  config::Config config = hybrid();
  config.pipeline.stages = 1;
  config.pipeline.partition = std::vector<int>{2};
  for (const auto& [bucket_mib, sums] : {std::pair(4.0, 5), {10.0, 2}, {7.0, 3}, {25.0, 1}}) {
    config.replicas.bucket_mb = bucket_mib;
    EXPECT_NEAR(what_if(config, profile).step.all_reduce, sums * 3e-3, kRounding) << bucket_mib;
  }
}

TEST(WhatIf, EveryPredictionOfAPlanIsTheSame) {
  profiler::LayerProfile profile = profile_of(4);
  profile.contenders = 2, profile.layers[0].cost.slowdown = 1.7;
  config::Config config = hybrid();
  for (const int chunks : {1, 4}) {
    config.pipeline.chunks = chunks;
    const WhatIf answer = what_if(config, profile);
    EXPECT_EQ(predict_by_profile(config, profile, answer.plan, 1).seconds, answer.step.seconds) << chunks;
  }
}

// As in a run, by the name of the key.
TEST(WhatIf, ACutThatIsNoneIsRefused) {
  config::Config config = hybrid();
  for (const std::vector<int>& cut : {std::vector{2, 1}, {4}, {2, 1, 1}}) {
    config.pipeline.partition = cut;
    EXPECT_THROW(static_cast<void>(what_if(config, profile_of(4))), ConfigError);
  }
}

TEST(WhatIf, SeveralProcessesShareTheBatch) {
  const double compute = 3 * 2 * 2e-3 + 2 * 10e-3;
  const double slowest = 1.0293753730 * 0.1 * compute;  // of four
  const WhatIf answer = what_if(hybrid(), profile_of(4), 2);
  EXPECT_NEAR(answer.step.seconds, compute + 7e-3 + slowest + 4e-3 + 5e-3, kRounding);
  EXPECT_NEAR(answer.samples_per_s, 16 / answer.step.seconds, 1e-6) << "of all processes";
  config::Config one = hybrid();
  one.replicas.local = 1;
  EXPECT_NEAR(what_if(one, profile_of(4), 2).step.update, 2e-3, kRounding) << "no other updates on these cores";
}

TEST(WhatIf, StagesOfOneDeviceHaveNoBorder) {
  config::Config config = hybrid();
  config.pipeline.schedule = "zb-v";  // devices 0 1 1 0
  config.pipeline.partition = std::vector<int>{1, 1, 1, 1};
  const Plan plan = request_by_profile(config, profile_of(4), 1).uncut();
  const auto borders = overheads_by_profile(config, profile_of(4), plan, 1).borders;
  ASSERT_EQ(borders.size(), 4U);
  EXPECT_EQ(borders[0].latency_s, 10e-3);
  EXPECT_EQ(borders[1].latency_s, 0);
  EXPECT_EQ(borders[2].latency_s, 10e-3);
}

TEST(WhatIf, EachProcessLoadsItsShare) {
  profiler::LayerProfile profile = profile_of(4);
  profile.load = LoadCost{.sample_s = 1, .cpu_s = 0};
  config::Config config = hybrid();
  config.data.workers = 2;
  EXPECT_NEAR(what_if(config, profile, 1).step.seconds, 16 / 2.0, kRounding) << "nothing takes longer";
  EXPECT_NEAR(what_if(config, profile, 2).step.seconds, 8 / 2.0, kRounding);
  const Plan plan{.partition = {{2, 2}}, .replicas = 2, .chunks = 2, .global_batch = 16};
  EXPECT_EQ(loading_of(config, profile, plan, 1)->busy_threads, 4) << "a thread on each device of each replica";
  EXPECT_EQ(loading_of(config, profile, plan, 1)->cores, 4);
}

TEST(SentShare, IsOfWhatGoesOverTheNetwork) {
  config::Config config = hybrid();
  EXPECT_EQ(sent_share(config, 2), 1);
  config.replicas.bucket_type = "bf16";
  EXPECT_EQ(sent_share(config, 2), 0.5);
  EXPECT_EQ(sent_share(config, 1), 1) << "replicas of one process add up in memory";
  config.train.precision = "fp64";
  EXPECT_EQ(sent_share(config, 2), 0.25);
}

// Three workers with 16 samples each, of one stage of four layers.
config::Config served(const std::string& policy) {
  config::Config config = hybrid();
  config.pipeline.stages = 1;
  config.pipeline.partition = std::vector<int>{4};
  config.pipeline.chunks = 1;
  config.replicas.local = 1;
  config.replicas.sync = "ps";
  config.ps.policy = policy;
  config.ps.workers = 3;
  config.ps.worker_batch = 16;
  return config;
}

// A push of 400 bytes takes 2 ms, a pull 1 ms.
profiler::LayerProfile profile_with_server() {
  profiler::LayerProfile profile = profile_of(4);
  profile.server = profiler::MeasuredServer{.cost = {.push = {.latency_s = 1e-3, .bytes_per_s = 2e5},
                                                     .pull = {.latency_s = 0.5e-3, .bytes_per_s = 4e5},
                                                     .update = {.a_s = 3e-3},
                                                     .merge = {.a_s = 1e-3}},
                                            .push_compression = "none",
                                            .pull_compression = "none"};
  return profile;
}

TEST(WhatIfServed, ACycleIsTheSumOfWhatItsPartsCost) {
  const double computing = 16 * 4e-3 + 5e-3;
  const WhatIf asp = what_if(served("asp"), profile_with_server());
  EXPECT_NEAR(asp.step.seconds, computing + (1e-3 + 2e-3) + 3e-3 + (0.5e-3 + 1e-3), kRounding);
  EXPECT_NEAR(asp.samples_per_s, 3 * 16 / asp.step.seconds, 1e-6) << "of all workers";
  EXPECT_EQ(asp.network_bytes, 2 * 400);

  const double slowest = 0.8462843753 * 0.1 * 16 * 4e-3;  // of three
  const WhatIf bsp = what_if(served("bsp"), profile_with_server());
  EXPECT_NEAR(bsp.step.seconds, asp.step.seconds + 2 * 1e-3 + 2 * 2e-3 + slowest, kRounding)
      << "the pushes of two others come and are merged first";
  EXPECT_NEAR(bsp.step.update, 3e-3 + 2 * 1e-3, kRounding);
  EXPECT_NEAR(bsp.step.all_reduce, 3e-3 + 1.5e-3 + 2 * 2e-3 + slowest, kRounding);
}

TEST(WhatIfServed, ASlowServerHoldsItsWorkersUp) {
  profiler::LayerProfile profile = profile_with_server();
  profile.server->cost.update.a_s = 1;
  EXPECT_NEAR(what_if(served("ssp"), profile).step.seconds, 3 * (2e-3 + 1 + 1e-3), kRounding);
}

TEST(WhatIfServed, WorkersOfOneMachineSlowEachOtherDown) {
  profiler::LayerProfile profile = profile_with_server();
  const double alone = what_if(served("asp"), profile).step.devices.at(0).compute;
  profile.contenders = 2;
  for (profiler::MeasuredLayer& layer : profile.layers) layer.cost.slowdown = 1.5;
  EXPECT_NEAR(what_if(served("asp"), profile).step.devices.at(0).compute, 2 * alone, kRounding) << "beside two others";
  config::Config apart = served("asp");
  apart.ps.keys = "keys";
  EXPECT_NEAR(what_if(apart, profile).step.devices.at(0).compute, alone, kRounding);
}

TEST(WhatIfServed, WorkersThatOutnumberTheCoresShareThemOnce) {
  profiler::LayerProfile profile = profile_with_server();
  config::Config config = served("asp");
  config.ps.workers = 8;
  config.device.threads = profile.fingerprint.threads_per_device = 1;
  profile.fingerprint.cores = 8;
  const double alone = what_if(config, profile).step.devices.at(0).compute;
  profile.fingerprint.cores = 4;
  const tune::StepPrediction shared = what_if(config, profile).step;
  EXPECT_NEAR(shared.devices.at(0).compute, 2 * alone, kRounding);
  EXPECT_LT(shared.seconds, 2.5 * alone) << "a core for each two workers: twice as long, and what the server takes";
}

TEST(WhatIfServed, APartitionIsAMicroBatch) {
  config::Config config = served("amb");
  config.ps.partitions = 8;
  EXPECT_EQ(what_if(config, profile_with_server()).plan.chunks, 8);
}

TEST(WhatIfServed, WhatIsNotPredictedIsSaid) {
  const auto left_out = [](const std::function<void(config::Config&, profiler::LayerProfile&)>& change) {
    config::Config config = served("asp");
    profiler::LayerProfile profile = profile_with_server();
    change(config, profile);
    return std::pair(server_left_out(config, profile), server_use(config, profile).has_value());
  };
  EXPECT_EQ(left_out([](auto&, auto&) {}), std::pair(std::string(), true));
  using Cases = std::vector<std::pair<std::function<void(config::Config&, profiler::LayerProfile&)>, std::string>>;
  const Cases whole{{[](auto&, auto& profile) { profile.server.reset(); }, "the profile has no `server`"},
                    {[](auto& config, auto&) { config.ps.clock = "virtual"; }, "ps.clock = \"virtual\""},
                    {[](auto& config, auto&) { config.ps.policy = "diloco"; }, "local steps"},
                    {[](auto& config, auto&) { config.ps.policy = "quorum"; }, "pushes of 2 of 3 workers"},
                    {[](auto& config, auto&) { config.ps.push_compression = "bf16"; }, "another compression"}};
  const Cases parts{
      {[](auto& config, auto&) { config.ps.policy = "amb", config.ps.time_limit_s = 1; }, "ps.time_limit_s"},
      {[](auto& config, auto&) { config.ps.induce = "ec2"; }, "ps.induce"},
      {[](auto& config, auto&) { config.ps.log = "disk"; }, "ps.log"},
      {[](auto& config, auto&) { config.ps.keys = "keys"; }, "encryption"}};
  for (const Cases* cases : {&whole, &parts}) {
    for (const auto& [change, part] : *cases) {
      const auto [sentence, is_predicted] = left_out(change);
      EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
      EXPECT_EQ(is_predicted, cases == &parts) << sentence;
    }
  }
}

TEST(WhatIfServed, LessTravelsCompressed) {
  config::Config config = served("asp");
  config.ps.push_compression = "topk";
  config.ps.topk_ratio = 0.01;
  config.ps.pull_compression = "bf16";
  EXPECT_NEAR(transferred_bytes(config, 400), 400 * 0.01 * 2 + 200, kRounding)
      << "a place for each number that is sent";
}

// Predictions of a run, by a profile that was kept for it: in a folder of its own, removed at the end.
class StepPredictorTest : public test::WithCountedMemory {
 protected:
  StepPredictorTest() : config_(hybrid()) {
    fs::remove_all(folder_);
    config_.device.list.choice = "cpu";
    config_.device.threads = 1;
    config_.model.name = "resnet8";  // five layers
    config_.model.image_size = 32;
    config_.data.name = "shapes";
    config_.data.samples = 64;
    config_.pipeline.partition = std::vector<int>{2, 3};
    config_.pipeline.cost_cache = folder_.string();
  }
  ~StepPredictorTest() override { fs::remove_all(folder_); }

  [[nodiscard]] train::Setup setup(int processes) const {
    return make_setup(config_, {.processes = processes, .local_size = processes});
  }
  // Of a run of so many processes, from this profile.
  [[nodiscard]] StepPredictor predictor(const train::Setup& setup, const profiler::LayerProfile& profile) const {
    measure::keep_profile(config_.pipeline.cost_cache, workload_of(setup), profile);
    const auto found = StepPredictor::known(setup);
    check(found.has_value(), "a profile was kept");
    return *found;
  }

  fs::path folder_ = fs::temp_directory_path() / ("sluice_step_predictor_" + std::to_string(::getpid()));
  config::Config config_;
  Plan plan_{.partition = {{2, 3}}, .replicas = 2, .chunks = 2, .global_batch = 16, .schedule = "gpipe"};
};

// How many times as long so many devices take on the cores of this machine, of which the kept profiles are.
double shared_by(int devices) { return std::max(1.0, static_cast<double>(devices) / device::available_cores()); }

// The first stage has two layers, the second one three: it is the slower one. The border takes so long that the stages
// of a replica never work together.
TEST_F(StepPredictorTest, AReplicaHasItsShareOfTheBatchOfAllProcesses) {
  profiler::LayerProfile profile = profile_of(5);
  profile.step.reset();
  profile.stage_links.front().cost.latency_s = 1;
  for (const auto& [processes, sum_s] : {std::pair(1, 3e-3), {2, 7e-3}}) {
    const double compute = (2 + 2 * 3) * 4e-3 / processes * shared_by(2 * processes);
    const train::Setup all = setup(processes);
    EXPECT_NEAR(predictor(all, profile).of(plan_).step_s, compute + 2 * 1 + sum_s + 4e-3 * shared_by(4 * processes),
                kRounding)
        << processes;
  }
}

// One stage of five layers: two replicas in each process of this machine. Nothing is known of sums over four processes.
TEST_F(StepPredictorTest, ProcessesOfAMachineShareItsCores) {
  config_.pipeline.stages = 1;
  config_.pipeline.partition = std::vector<int>{5};
  profiler::LayerProfile profile = profile_of(5);
  profile.step.reset();
  profile.update_together.reset();
  profile.update.reset();
  const Plan plan{.partition = {{5}}, .replicas = 2, .chunks = 2, .global_batch = 16, .schedule = "gpipe"};
  for (const auto& [processes, sum_s] : {std::pair(1, 3e-3), {2, 7e-3}, {4, 0.0}}) {
    const train::Setup all = setup(processes);
    const double samples = 16.0 / (2 * processes);
    EXPECT_NEAR(predictor(all, profile).of(plan).step_s, 5 * 1e-3 * samples * shared_by(2 * processes) + sum_s,
                kRounding)
        << processes;
  }
}

TEST_F(StepPredictorTest, WithoutSumsOverItsReplicasItIsByLayersAlone) {
  profiler::LayerProfile profile = profile_of(5);
  const train::Setup two = setup(2);
  EXPECT_TRUE(predictor(two, profile).is_by_profile());
  EXPECT_EQ(predictor(two, profile).of(plan_).by, "profile");
  profile.all_reduces.resize(1);  // of one process
  EXPECT_FALSE(predictor(two, profile).is_by_profile());
  EXPECT_EQ(predictor(two, profile).of(plan_).by, "layers");
  EXPECT_TRUE(predictor(setup(1), profile).is_by_profile());
}

TEST_F(StepPredictorTest, LoadingCountsWhereTheProfileHasLoadedTheSame) {
  profiler::LayerProfile profile = profile_of(5);
  const train::Setup alone = setup(1);
  const double without = predictor(alone, profile).of(plan_).step_s;
  profile.load = LoadCost{.sample_s = 1, .cpu_s = 0};
  profile.load_of = hash_of_loading(alone.config);
  EXPECT_NEAR(predictor(alone, profile).of(plan_).step_s, 16, kRounding) << "one worker, a second a sample";
  EXPECT_NEAR(predictor(alone, profile).seconds_without_loading(plan_), without, kRounding);
  profile.load_of = "of other samples";
  EXPECT_NEAR(predictor(alone, profile).of(plan_).step_s, without, kRounding);
}

// Where each push makes an update there are as many of them in a cycle as workers.
TEST_F(StepPredictorTest, AStepOfAServerIsAnUpdate) {
  profiler::LayerProfile profile = profile_of(5);
  profile.server = profile_with_server().server;
  config_.replicas.local = 1;
  config_.replicas.sync = "ps";
  config_.train.steps = 10;
  config_.ps.keys = "keys";  // whatever cores this machine has
  config_.ps.workers = 3;
  config_.ps.worker_batch = 16;
  for (const auto& [policy, updates] : {std::pair("bsp", 1), {"asp", 3}}) {
    config_.ps.policy = policy;
    const train::Setup of_server = setup(1);
    const StepPredictor predicted = predictor(of_server, profile);
    const WhatIf answer = what_if(of_server.config, profile);
    EXPECT_NEAR(predicted.of(answer.plan).step_s, answer.step.seconds / updates, kRounding) << policy;
    EXPECT_EQ(predicted.samples(answer.plan), 3 * 16 / updates);
    EXPECT_TRUE(predicted.of(answer.plan).device_bytes.empty()) << "the workers' devices are theirs";
  }
  profile.server.reset();
  const train::Setup unknown = setup(1);
  measure::keep_profile(config_.pipeline.cost_cache, workload_of(unknown), profile);
  EXPECT_FALSE(StepPredictor::known(unknown).has_value());
}

// Each device has the bytes of its own stage, with the kernels of the largest micro-batch: four samples in each of two
// processes of one replica.
TEST_F(StepPredictorTest, BytesAreThoseOfTheDevicesStageAndItsMicroBatch) {
  profiler::LayerProfile profile = profile_of(5);
  for (profiler::MeasuredLayer& layer : profile.layers)
    layer.bytes = {{.samples = 4, .saved = {.per_sample = 1000}}, {.samples = 8, .saved = {.fixed = 1 << 30}}};
  profile.layers[0].bytes[0].saved.per_sample = 100'000;
  const train::Setup alone = setup(1);
  const auto bytes = predictor(alone, profile).of(plan_).device_bytes;
  ASSERT_EQ(bytes.size(), 4U);
  EXPECT_EQ(bytes.at("cpu:0"), bytes.at("cpu:2"));
  EXPECT_EQ(bytes.at("cpu:1"), bytes.at("cpu:3"));
  EXPECT_GT(bytes.at("cpu:0"), 2 * 4 * 100'000) << "gpipe keeps both micro-batches";
  EXPECT_LT(bytes.at("cpu:1"), 4 * 100'000);

  config_.replicas.local = 1;
  plan_.replicas = 1;
  const train::Setup two = setup(2);
  for (const auto& [device, size] : predictor(two, profile).of(plan_).device_bytes) EXPECT_LT(size, 1 << 30) << device;
}

}  // namespace
}  // namespace sluice::train
