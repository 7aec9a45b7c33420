// device.memory_limit on CPU devices, through a whole training step: a run that needs more ends with what and where,
// and one that fits computes the same bits as without a limit.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "device/memory.h"
#include "measure/measure_layers.h"
#include "memory_runs.h"
#include "train/plan/choose_chunks.h"
#include "train/plan/choose_plan.h"
#include "train/plan/composition.h"
#include "train/plan/memory_advice.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

using test::Outcome;
using test::small_config;
using test::train;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr std::uint64_t kMiB = 1 << 20;

class MemoryLimit : public test::WithCountedMemory {};

std::string failure_of(const config::Config& config) {
  try {
    train(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory) << error.what();
    return error.what();
  }
  return "it fits";
}

// The number that "key = " stands before.
int advised(const std::string& failure, const std::string& key) {
  const auto found = failure.find(key + " = ");
  if (found == std::string::npos) ADD_FAILURE() << key << " is not advised: " << failure;
  return found == std::string::npos ? 1 : std::stoi(failure.substr(found + key.size() + 3));
}

TEST_F(MemoryLimit, AStepThatFitsIsBitEqualAndOneThatDoesNotIsNamed) {
  config::Config config = small_config(2, 4);
  const Outcome free = train(config);
  const std::uint64_t most = std::max(free.use[0].peak, free.use[1].peak);

  // How soon a neighbour frees what it was passed is a matter of time, so a run may need a little more than another.
  config.device.memory_limit.bytes = static_cast<std::int64_t>(most + most / 4);
  const Outcome limited = train(config);
  EXPECT_EQ(limited.losses, free.losses);
  for (const auto& [name, tensor] : free.parameters)
    EXPECT_TRUE(at::equal(tensor, limited.parameters.at(name))) << name;

  const std::uint64_t too_little = most * 6 / 10;
  config.device.memory_limit.bytes = static_cast<std::int64_t>(too_little);
  const std::string failure = failure_of(config);
  const int stage = failure.starts_with("replica 0 stage 0") ? 0 : 1;
  EXPECT_THAT(failure,
              AllOf(StartsWith(concat("replica 0 stage ", stage, " at action ", stage)), HasSubstr(", micro-batch "),
                    HasSubstr(concat("out of memory on cpu:", stage, ": no room for ")),
                    ContainsRegex("in (forward|backward|loss) of [a-z0-9.]+( \\.\\. [a-z0-9.]+)? with samples "
                                  "\\[16, 3, 32, 32\\]: out of memory"),
                    HasSubstr(concat("in its device.memory_limit of ", human_bytes(too_little))),
                    HasSubstr("which holds activations "), HasSubstr(", gradients "), HasSubstr("pipeline.chunks = ")));
  // Nothing of the failed run is left on the devices.
  for (const int device : {0, 1}) EXPECT_EQ(device::memory_use({device::DeviceKind::kCpu, device}).current, 0U);
}

TEST_F(MemoryLimit, MemoryIsCountedByDeviceAndKind) {
  config::Config config = small_config(2, 4);
  config.replicas.local = 2;
  const train::Setup setup = make_setup(config);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  engine::Composition& composition = engine.composition();
  for (int r = 0; r < 2; ++r) {
    for (int s = 0; s < 2; ++s) {
      const auto& parameters = composition.executor->stage(ReplicaId{r}, StageId{s}).parameters();
      const auto use = device::memory_use(setup.devices[2 * r + s]).by_kind;
      const std::uint64_t values = r == 0 ? parameters.values().nbytes() : 0;
      EXPECT_EQ(use[device::MemoryKind::kParameters], values + parameters.running_statistics().nbytes()) << r << s;
      EXPECT_EQ(use[device::MemoryKind::kGradients], parameters.gradients().nbytes());
      EXPECT_EQ(use[device::MemoryKind::kOptimizer], values);  // momentum
      EXPECT_EQ(use[device::MemoryKind::kActivations], 0U);
    }
  }
}

TEST_F(MemoryLimit, WhatIsSaidToFitDoes) {
  config::Config config = small_config(1, 1);
  const std::uint64_t most = train(config).use[0].peak;
  config.device.memory_limit.bytes = static_cast<std::int64_t>(most / 3);
  testing::internal::CaptureStderr();
  const std::string failure = failure_of(config);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), ContainsRegex("out of memory on cpu:0.*; measuring which"));
  config.pipeline.chunks = advised(failure, "pipeline.chunks");
  EXPECT_EQ(failure_of(config), "it fits") << failure;
}

TEST_F(MemoryLimit, WhereTheMicroBatchIsGivenAnotherOneIsSaidToFit) {
  config::Config config = small_config(1, 1);
  config.train.micro_batch = 64;
  const std::uint64_t most = train(config).use[0].peak;
  config.device.memory_limit.bytes = static_cast<std::int64_t>(most / 3);
  const std::string failure = failure_of(config);
  EXPECT_THAT(failure, Not(HasSubstr("pipeline.chunks = ")));
  config.train.micro_batch = advised(failure, "train.micro_batch");
  EXPECT_EQ(failure_of(config), "it fits") << failure;
}

// Five layers of `cost` instead of those of the model.
tune::MemoryModel model_of(const LayerCost& cost) { return {.layers = std::vector<LayerCost>(5, cost)}; }

TEST_F(MemoryLimit, StagesAreAdvisedAsTheListsAllow) {
  const tune::MemoryModel model = model_of({.parameter_bytes = 1000, .gradient_bytes = 1000});
  config::Config config = small_config(2, 4);
  config.device.memory_limit.bytes = 5000;
  const Plan plan = tune::make_plan(plan_request(make_setup(config)), model.layers);
  EXPECT_EQ(fitting_advice(model, make_setup(config), plan),
            "pipeline.stages = 3 with pipeline.partition = \"auto\" would need about 3.9 KiB a device");
  config::Config followed = config;
  followed.pipeline.stages = 3;
  followed.pipeline.partition = std::nullopt;
  EXPECT_LE(tune::estimate_bytes(model, tune::make_plan(plan_request(make_setup(followed)), model.layers)), 5000U);
  // Three stages would need another name.
  config.device.list = {.choice = "", .names = {"cpu:0", "cpu:1"}};
  EXPECT_THAT(fitting_advice(model, make_setup(config), plan), Not(HasSubstr("pipeline.stages")));
}

TEST_F(MemoryLimit, SlotsOnOneDeviceShareItsLimit) {
  const tune::MemoryModel model = model_of({.saved_bytes = {.per_sample = 1000}, .parameter_bytes = 8});
  config::Config config = small_config(2, 1);
  config.device.list = {.choice = "", .names = {"cpu:0", "cpu:0"}};
  Plan plan{.partition = {{2, 3}}, .chunks = 2, .global_batch = 64};
  const std::uint64_t limit = tune::estimate_bytes(model, plan).value();  // but of one of the two
  config.device.memory_limit.bytes = static_cast<std::int64_t>(limit);
  plan.chunks = 1;
  const std::string advice = fitting_advice(model, make_setup(config), plan);
  plan.chunks = advised(advice, "pipeline.chunks");
  EXPECT_LE(tune::estimate_bytes(model, plan).value(), limit / 2) << advice;
  EXPECT_THAT(advice, HasSubstr(" a place"));
}

// The keys that a worker of a parameter server may set for itself.
TEST_F(MemoryLimit, AWorkerIsAdvisedToSetItsOwnBatch) {
  const tune::MemoryModel model = model_of({.saved_bytes = {.per_sample = 1000}, .parameter_bytes = 8});
  config::Config config = small_config(1, 4);
  config.replicas.sync = "ps";
  config.ps.workers = 2;
  config.ps.worker_batch = 64;
  config.device.memory_limit.bytes = 50'000;
  const Plan plan{.partition = {{5}}, .chunks = 4, .global_batch = 64, .recompute = {false}};
  EXPECT_EQ(less_memory(config), "use a smaller ps.worker_batch, more pipeline.chunks or more pipeline.stages");
  std::string advice = fitting_advice(model, make_setup(config), plan);
  EXPECT_THAT(advice, AllOf(HasSubstr("pipeline.chunks = "), Not(HasSubstr("train.global_batch"))));
  Plan smaller = plan;
  smaller.global_batch = config.ps.worker_batch = advised(advice, "ps.worker_batch");
  EXPECT_LE(tune::estimate_bytes(model, smaller).value(), 50'000U) << advice;
  EXPECT_NO_THROW(config::validate(config)) << advice;

  config.ps.worker_batch = 64;
  config.pipeline.chunks = std::nullopt;
  config.ps.policy = "amb";
  config.ps.time_limit_s = 1;
  config.ps.partitions = 4;
  EXPECT_THAT(less_memory(config), HasSubstr("more ps.partitions"));
  EXPECT_THAT(fitting_advice(model, make_setup(config), plan),
              AllOf(HasSubstr("ps.partitions = "), Not(HasSubstr("pipeline.chunks = "))));

  config.ps.policy = "dual_batch";  // the shares of all workers come from one batch
  config.ps.time_limit_s = 0;
  config.ps.partitions = 0;
  config.ps.sample_s = 0.01;
  EXPECT_THAT(less_memory(config), Not(HasSubstr("batch")));
}

// A refusal of so little memory that something is advised.
std::string advice_in(const config::Config& config, const Plan& plan) {
  const train::Setup setup = make_setup(config);
  testing::internal::CaptureStderr();
  const std::string advice =
      with_fitting_advice(OutOfMemoryError("no room in its device.memory_limit of 64.0 MiB"), setup, plan).what();
  testing::internal::GetCapturedStderr();
  return advice;
}

TEST_F(MemoryLimit, AfterAChangeOfPlanTheAdviceIsForItsOwnSettingsAndDevices) {
  config::Config config = small_config(1, 1);
  config.device.list = {.choice = "", .names = {"cpu:0", "cpu:0"}};
  config.device.memory_limit.bytes = 64 * kMiB;
  config.pipeline.changes = {"1: stages = 2, partition = [2, 3], chunks = 2"};
  const Plan plan{.partition = {{2, 3}}, .chunks = 2, .global_batch = 64, .recompute = {false, false}};
  EXPECT_THAT(advice_in(config, plan),
              AllOf(HasSubstr(" a place"), HasSubstr("(pipeline.changes sets it for the plans that it names)")))
      << "the two stages share cpu:0";
}

TEST_F(MemoryLimit, AMicroBatchThatDoesNotDivideTheBatchHindersNoAdvice) {
  config::Config config = small_config(1, 1);
  config.device.memory_limit.bytes = 4 * kMiB;
  config.train.global_batch = 100;
  config.train.micro_batch = 8;
  const Plan plan{.partition = {{5}}, .chunks = 13, .global_batch = 100, .recompute = {false}};
  EXPECT_THAT(advice_in(config, plan), Not(HasSubstr("no setting needs less")));
}

TEST_F(MemoryLimit, EarlierChangesHinderNoAdviceForALaterPlan) {
  config::Config config = small_config(1, 1);
  config.device.memory_limit.bytes = 4 * kMiB;
  config.train.global_batch = 32;
  config.pipeline.changes = {"5: chunks = 16", "10: replicas = 4, chunks = 4"};
  const Plan plan{.partition = {{5}}, .replicas = 4, .chunks = 4, .global_batch = 32, .recompute = {false}};
  EXPECT_THAT(advice_in(config, plan), Not(HasSubstr("no setting needs less")));
}

TEST_F(MemoryLimit, AfterAChangeOfPlanTheAdviceIsThatOfARunThatBeganWithIt) {
  config::Config begun = small_config(1, 1);
  begun.device.memory_limit.bytes = 4 * kMiB;
  begun.train.micro_batch = 8;
  begun.replicas.local = 4;
  config::Config changed = begun;
  changed.replicas.local = 1;
  changed.pipeline.changes = {"1: replicas = 4"};
  const Plan plan{.partition = {{5}}, .replicas = 4, .chunks = 2, .global_batch = 64, .recompute = {false}};
  EXPECT_THAT(advice_in(changed, plan), StartsWith(advice_in(begun, plan)));
}

TEST_F(MemoryLimit, ARefusalOfTheSystemIsNotMeasured) {
  config::Config config = small_config(1, 1);
  config.device.memory_limit.bytes = 100 * kMiB;
  const train::Setup setup = make_setup(config);
  const OutOfMemoryError refusal("replica 0 stage 0: out of memory: no room for 4.0 GiB");
  testing::internal::CaptureStderr();
  EXPECT_STREQ(with_fitting_advice(refusal, setup, decide_plan(setup)).what(), refusal.what());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// What `measure` takes at most of the host's memory.
std::uint64_t host_rise(const std::function<void()>& measure) {
  constexpr device::Device kHost{device::DeviceKind::kCpu, -1};
  device::reset_peak_memory(kHost);
  const std::uint64_t before = device::host_memory_use().current;
  measure();
  return device::host_memory_use().peak - before;
}

TEST_F(MemoryLimit, WhatFailedForOneSampleIsNotMeasuredWithMany) {
  const train::Setup setup = make_setup(small_config(1, 64));
  const std::uint64_t of_four = host_rise([&] { (void)measure::measure_layer_bytes(workload_of(setup), 4); });
  EXPECT_LT(host_rise([&] { (void)measure_memory_model(setup); }), of_four * 3 / 4);
}

// Symptom: a run that fits was refused with exit code 4, for moments of the copy of the embedding in the head.
TEST_F(MemoryLimit, CopiesOfTiedParametersNeedNoOptimizerState) {
  config::Config config = small_config(1, 1);
  config.model = {{.name = "gpt2", .size = "nano"}};
  config.data.name = "toy";
  config.train.optimizer = "adamw";
  config.train.global_batch = 1;
  const auto charged = train(config).use[0].by_kind;
  const std::uint64_t state = charged[device::MemoryKind::kParameters] + charged[device::MemoryKind::kGradients] +
                              charged[device::MemoryKind::kOptimizer];
  ASSERT_LT(charged[device::MemoryKind::kOptimizer], 2 * charged[device::MemoryKind::kGradients]);
  config.device.memory_limit.bytes = static_cast<std::int64_t>(state);
  const train::Setup setup = make_setup(config);
  EXPECT_NO_THROW(engine::Engine(decide_plan(setup), engine_options(setup)));
}

TEST_F(MemoryLimit, ARunThatOnlyRecomputationFitsFits) {
  config::Config config = small_config(1, 1);
  const Outcome free = train(config);
  config.pipeline.recompute.all = "layer";
  const std::uint64_t recomputing = train(config).use[0].peak;
  ASSERT_LT(recomputing, free.use[0].peak * 9 / 10);
  config.device.memory_limit.bytes = static_cast<std::int64_t>((recomputing + free.use[0].peak) / 2);
  EXPECT_EQ(train(config).losses, free.losses);
  config.pipeline.recompute.all = "none";
  EXPECT_THAT(failure_of(config), HasSubstr("out of memory on cpu:0"));
}

TEST_F(MemoryLimit, OpenChunksLeaveOutWhatDoesNotFit) {
  config::Config config = small_config(1, 1);
  const std::uint64_t most = train(config).use[0].peak;
  config.pipeline.chunks = std::nullopt;
  config.device.memory_limit.bytes = static_cast<std::int64_t>(most * 2 / 3);
  const train::Setup setup = make_setup(config);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  testing::internal::CaptureStderr();
  decide_chunks(setup, engine, {});
  EXPECT_GT(engine.plan().chunks, 1);
  std::istringstream log(testing::internal::GetCapturedStderr());
  for (std::string line; std::getline(log, line);)
    EXPECT_THAT(line, HasSubstr("pipeline.chunks = \"auto\"")) << "nothing failed, so no schedule is drawn";
}

TEST_F(MemoryLimit, OpenChunksAreMoreThanSpeedAsksForWhereOnlyThenTheyFit) {
  config::Config config = small_config(1, 4);  // the most that one stage tries for speed
  const std::uint64_t most = train(config).use[0].peak;
  config.pipeline.chunks = std::nullopt;
  config.device.memory_limit.bytes = static_cast<std::int64_t>(most * 2 / 3);
  const train::Setup setup = make_setup(config);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  decide_chunks(setup, engine, {});
  config.pipeline.chunks = engine.plan().chunks;
  EXPECT_GT(config.pipeline.chunks, 4);
  EXPECT_EQ(failure_of(config), "it fits");
}

TEST_F(MemoryLimit, WhereNoOpenNumberOfChunksFitsTheFirstFailureIsExplained) {
  config::Config config = small_config(1, 64);
  const device::MemoryUse single = train(config).use[0];  // a sample at a time
  std::uint64_t state = 0;
  for (const std::uint64_t bytes : single.by_kind.bytes) state += bytes;
  ASSERT_LT(state, single.peak);
  config.pipeline.chunks = std::nullopt;
  config.device.memory_limit.bytes = static_cast<std::int64_t>((state + single.peak) / 2);
  const train::Setup setup = make_setup(config);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  try {
    decide_chunks(setup, engine, {});
    FAIL() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("out of memory on cpu:0"), HasSubstr("none of these fits by itself")));
  }
}

// Its batch is larger than that of training; its micro-batches are not.
TEST_F(MemoryLimit, AnEvaluationFitsWhereTrainingDoes) {
  config::Config config = small_config(2, 8);
  const Outcome free = train(config);
  config.device.memory_limit.bytes = static_cast<std::int64_t>(std::max(free.use[0].peak, free.use[1].peak) * 5 / 4);
  const train::Setup setup = make_setup(config);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  engine::Composition& composition = engine.composition();
  at::manual_seed(1);
  const pipeline::MicroBatch batch{
      {at::randn({1021, setup.model.channels, 32, 32})}, {at::zeros({1021}, at::kLong)}, at::arange(1021)};
  engine::TrainStepOptions options = engine_options(setup).step;
  const engine::EvalStats limited = engine::TrainStep(composition, options).evaluate(batch);
  EXPECT_EQ(limited.scores.targets, 1021);
  options.memory_is_limited = false;
  engine::TrainStep step(composition, options);
  EXPECT_THAT([&] { step.evaluate(batch); }, ThrowsMessage<Error>(HasSubstr("out of memory on"))) << "it fits as it is";
}

TEST_F(MemoryLimit, AnEvaluationThatDoesNotFitPointsToItsOwnBatch) {
  config::Config config = small_config(1, 1);
  config.device.memory_limit.bytes = 12 * kMiB;
  const train::Setup setup = make_setup(config);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  engine::TrainStep& step = engine.step();
  const std::int64_t samples = 2048;
  const pipeline::MicroBatch batch{
      {at::zeros({samples, setup.model.channels, 32, 32})}, {at::zeros({samples}, at::kLong)}, at::arange(samples)};
  try {
    step.evaluate(batch);
    FAIL() << "the limit was not held";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("use a smaller train.eval_batch"), Not(HasSubstr("pipeline.chunks"))));
  }
}

}  // namespace
}  // namespace sluice::train
