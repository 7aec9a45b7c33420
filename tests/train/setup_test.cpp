// What a configuration leaves open is taken from the data; what cannot be is refused with the key's name.
#include "train/setup/setup.h"
#include "train/plan/choose_plan.h"
#include "train/plan/composition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/schema.h"
#include "core/concat.h"
#include "core/error.h"
#include "device/cpu_threads.h"
#include "ps/compression.h"
#include "train/plan/plan_description.h"
#include "train/setup/machine_fit.h"
#include "train/setup/peers.h"

namespace sluice::train {
namespace {

using testing::HasSubstr;

config::Config small_config() {
  config::Config config;
  config.device.list.choice = "cpu";
  config.data.name = "shapes";
  config.data.samples = 72;
  config.train.global_batch = 16;
  return config;
}

std::string refusal(const config::Config& config) {
  try {
    (void)tune::make_plan(plan_request(make_setup(config)), {});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Schema, OffersTheCompressionsThereAre) {
  for (const char* key : {"ps.push_compression", "ps.pull_compression"})
    EXPECT_EQ(std::get<config::Words>(config::find_key(key)->limit), ps::compression_names()) << key;
  EXPECT_EQ(ps::compression_named("none"), ps::Compression::Kind::kNone);
  EXPECT_EQ(ps::compression_named("bf16"), ps::Compression::Kind::kBf16);
  EXPECT_EQ(ps::compression_named("topk"), ps::Compression::Kind::kTopK);
}

TEST(MakeSetup, TakesClassesChannelsAndImageSizeFromTheData) {
  const train::Setup setup = make_setup(small_config());
  EXPECT_EQ(setup.model.classes, 10);
  EXPECT_EQ(setup.model.channels, 3);
  EXPECT_EQ(setup.model.image_size, 32);
  EXPECT_EQ(setup.model.dtype, at::kFloat);
  EXPECT_EQ(setup.train_set->size(), 72);
  EXPECT_EQ(setup.test_set->size(), 14);
}

TEST(MakeSetup, ASyntheticSetFollowsTheModelInstead) {
  config::Config config = small_config();
  config.model.image_size = 16;
  config.model.channels = 1;
  config.model.classes = 12;
  config.train.precision = "fp64";
  const train::Setup setup = make_setup(config);
  EXPECT_EQ(setup.train_set->info().height, 16);
  EXPECT_EQ(setup.train_set->info().channels, 1);
  EXPECT_EQ(setup.model.classes, 12) << "more outputs than classes are allowed";
  EXPECT_EQ(setup.model.dtype, at::kDouble);
}

TEST(MakeSetup, TakesTheSequencesOfTextFromTheModel) {
  config::Config config = small_config();
  config.model.name = "gpt2";
  config.model.size = "nano";
  config.data.name = "toy";
  train::Setup setup = make_setup(config);
  EXPECT_EQ(setup.model.vocabulary, 256);
  EXPECT_EQ(setup.model.context, 32);
  EXPECT_EQ(setup.train_set->info().context, 32);
  EXPECT_EQ(setup.layers, 6);
  config.model.vocabulary = 64;
  config.model.context = 9;
  setup = make_setup(config);
  EXPECT_EQ(setup.model.vocabulary, 64);
  EXPECT_EQ(setup.test_set->info().context, 9);
}

TEST(MakeSetup, CountsTheStepsOfARunWithShortLastBatches) {
  config::Config config = small_config();
  config.train.epochs = 3;
  EXPECT_EQ(make_setup(config).batches_per_epoch, 5);
  EXPECT_EQ(make_setup(config).total_steps, 15);
  config.train.steps = 7;
  EXPECT_EQ(make_setup(config).total_steps, 7);
  EXPECT_EQ(lr_schedule(make_setup(config)).total_steps, 7);
}

// Three workers push 32 samples each for an update: 300 samples are four updates, not ten.
TEST(MakeSetup, CountsTheEpochsOfAServersRateInUpdates) {
  config::Config config = small_config();
  config.data.samples = 300;
  config.replicas.sync = "ps";
  config.ps.policy = "bsp";
  config.ps.workers = 3;
  config.ps.worker_batch = 32;
  config.ps.clock = "virtual";
  config.train.steps = 20;
  config.train.lr_schedule = "step";
  config.train.lr_decay_epochs = {2};
  config.train.warmup_epochs = 0.5;
  const optim::LrSchedule rates = lr_schedule(make_setup(config));
  EXPECT_EQ(rates.decay_steps, std::vector<std::int64_t>{8});
  EXPECT_EQ(rates.warmup_steps, 2);
}

// Symptom: planning measured at the configured size, for 50 s or until the kernel ended it at 24 GB.
TEST(MakeSetup, ABatchIsNoLargerThanTheDataSet) {
  config::Config config = small_config();
  config.train.global_batch = 1'000'000'000;
  config.pipeline.stages = 2;
  config.replicas.local = 2;
  const train::Setup setup = make_setup(config);
  EXPECT_EQ(setup.global_batch, 72);
  EXPECT_EQ(micro_batch_size(setup), 36);
  EXPECT_EQ(setup.batches_per_epoch, 1);
  EXPECT_EQ(train_loader_options(setup).batch_size, 72);
  config.train.micro_batch = 9;
  EXPECT_EQ(configured_chunks(make_setup(config)), 4);
  testing::internal::CaptureStderr();
  warn_of_unusual_settings(setup);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("train.global_batch = 1000000000 is more than the 72 samples of shapes: each step uses all of "
                        "them"));
}

TEST(MakeSetup, ThreadsFarBeyondTheCoresAreWarnedOf) {
  config::Config config = small_config();
  const auto warning_at = [&](int threads) {
    config.device.threads = threads;
    const train::Setup setup = make_setup(config);
    testing::internal::CaptureStderr();
    warn_of_unusual_settings(setup);
    return testing::internal::GetCapturedStderr();
  };
  const int cores = device::available_cores();
  EXPECT_EQ(warning_at(0), "");
  EXPECT_EQ(warning_at(4 * cores), "");
  const int many = 4 * cores + 1;
  EXPECT_THAT(warning_at(many),
              HasSubstr(concat("device.threads = ", many, " makes ", many, " threads on 1 CPU device, but ")));
  const auto refused_at = [&](int threads) {
    config.device.threads = threads;
    try {
      refuse_too_many_threads(make_setup(config));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused_at(0), "");
  if (64 * cores + 1 > 1024) GTEST_SKIP() << "device.threads goes up to 1024";
  EXPECT_EQ(refused_at(64 * cores), "");
  EXPECT_THAT(refused_at(64 * cores + 1), HasSubstr("and the limit is 64 a core; device.threads = 0 shares"));
}

TEST(MakeSetup, ABatchBeyondTheMemoryOfTheMachineIsRefused) {
  config::Config config = small_config();
  config.data.name = "shapes";
  config.data.samples = 1'000'000'000;
  config.train.global_batch = 64;
  EXPECT_NO_THROW(refuse_too_large_batch(make_setup(config)));
  config.train.global_batch = config.data.samples;
  try {
    refuse_too_large_batch(make_setup(config));
    ADD_FAILURE() << "no memory is so large";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.global_batch = 1000000000 makes batches of "));
  }
}

TEST(MakeSetup, OfNamedDevicesTheFirstAreTakenAndTheOthersNamed) {
  config::Config config = small_config();
  config.pipeline.stages = 2;
  config.device.list = {.choice = "", .names = {"cpu:1", "cpu:0", "cpu:5", "cpu:7"}};
  const train::Setup setup = make_setup(config);
  ASSERT_EQ(setup.devices.size(), 2U);
  EXPECT_EQ(device::to_string(setup.devices.front()), "cpu:1");
  EXPECT_THAT(unused_devices(setup, 2), testing::ElementsAre("cpu:5", "cpu:7"));
  EXPECT_THAT(unused_devices(setup, 3), testing::ElementsAre("cpu:7"));
  config.pipeline.partition = std::vector<int>{2, 3};
  const train::Setup cut = make_setup(config);
  engine::Engine engine(tune::make_plan(plan_request(cut), {}), engine_options(cut));
  const engine::Composition& composition = engine.composition();
  const PlanDescription plan = describe_plan(cut, composition, false);
  EXPECT_THAT(plan.text, HasSubstr("the first 2 entries of device.list are used, not cpu:5, cpu:7"));
  EXPECT_EQ(plan.json.at("unused_devices"), nlohmann::ordered_json::array({"cpu:5", "cpu:7"}));
  config.device.list = {};
  EXPECT_THAT(unused_devices(make_setup(config), 2), testing::IsEmpty());
}

TEST(MakeSetup, OneDeviceForEachStageOfEachReplica) {
  config::Config config = small_config();
  config.pipeline.stages = 3;
  config.replicas.local = 2;
  const train::Setup setup = make_setup(config);
  ASSERT_EQ(setup.devices.size(), 6U);
  EXPECT_EQ(device::to_string(setup.devices.back()), "cpu:5");
  EXPECT_GE(setup.cpu_threads, 1);
}

TEST(MakeSetup, ChunksComeFromTheSizeOfAMicroBatchOrAsConfigured) {
  config::Config config = small_config();
  config.replicas.local = 2;
  config.train.micro_batch = 3;  // of 8 samples a replica
  EXPECT_EQ(tune::make_plan(plan_request(make_setup(config)), {}).chunks, 3);
  config.train.micro_batch = 0;
  config.pipeline.chunks = 4;
  EXPECT_EQ(tune::make_plan(plan_request(make_setup(config)), {}).chunks, 4);
  config.train.micro_batch = 2;
  EXPECT_EQ(configured_chunks(make_setup(config)), 4) << "both say the same";
  const train::Setup setup = make_setup(config);
  config.pipeline.chunks = 2;
  const auto refusal = testing::ThrowsMessage<ConfigError>(
      HasSubstr("train.micro_batch = 2 makes 4 micro-batches a step, but pipeline.chunks = 2"));
  EXPECT_THAT([&] { (void)make_setup(config); }, refusal);
  EXPECT_THAT([&] { (void)with_settings(setup, config); }, refusal) << "in a change of plan";
}

TEST(MakeSetup, BalancesThePartitionByTheMeasuredCosts) {
  config::Config config = small_config();
  config.pipeline.stages = 2;
  const train::Setup setup = make_setup(config);
  EXPECT_TRUE(plan_request(setup).cut_is_open());
  std::vector<LayerCost> costs(models::make_model(setup.model).layers.size(),
                               {.forward = {.a_s = 1}, .input_gradient = {.b_s = 2}});
  costs.front().weight_gradient.b_s = 1000;
  const Plan plan = tune::make_plan(plan_request(setup), costs);
  EXPECT_EQ(plan.partition.layers_per_stage.front(), 1);
  EXPECT_EQ(plan.stages(), 2);
}

TEST(MakeSetup, AConfiguredPartitionIsTakenAsItIs) {
  config::Config config = small_config();
  config.model.name = "toy_cnn";
  config.pipeline.stages = 2;
  models::ModelOptions toy_cnn;
  toy_cnn.name = "toy_cnn";
  const int layers = static_cast<int>(models::make_model(toy_cnn).layers.size());
  config.pipeline.partition = std::vector<int>{layers - 1, 1};
  EXPECT_FALSE(plan_request(make_setup(config)).cut_is_open());
  EXPECT_EQ(tune::make_plan(plan_request(make_setup(config)), {}).partition.layers_per_stage,
            *config.pipeline.partition);
  config.pipeline.partition = std::vector<int>{layers, 1};
  EXPECT_THAT(refusal(config), HasSubstr("pipeline.partition"));
}

TEST(MakeSetup, RefusesWhatCannotBe) {
  const auto refused = [](void (*change)(config::Config&)) {
    config::Config config = small_config();
    change(config);
    return refusal(config);
  };
  EXPECT_THAT(refused([](auto& c) { c.model.classes = 9; }), HasSubstr("model.classes = 9"));
  EXPECT_THAT(refused([](auto& c) { c.pipeline.stages = 90; }), HasSubstr("pipeline.stages"));
  EXPECT_THAT(refused([](auto& c) { c.data.name = "no_such_set"; }), HasSubstr("no_such_set"));
  EXPECT_THAT(refused([](auto& c) { c.model.name = "no_such_model"; }), HasSubstr("no_such_model"));
  EXPECT_THAT(refused([](auto& c) { c.data.name = "toy"; }), HasSubstr("data set toy has tokens"));
  EXPECT_THAT(refused([](auto& c) { c.model.name = "gpt2"; }), HasSubstr("data set shapes has images"));
  EXPECT_THAT(refused([](auto& c) { c.model.context = 9; }), HasSubstr("model.context=9 is not supported by resnet8"));
  EXPECT_THAT(refused([](auto& c) { c.replicas.local = 17; }), HasSubstr("train.global_batch=16"));
  EXPECT_THAT(refused([](auto& c) {
                c.replicas.local = 2;
                c.replicas.sync = "none";
              }),
              HasSubstr("replicas.sync"));
}

TEST(MakeSetup, EvaluationReadsEverySampleOnceInOrderWithoutAugmentation) {
  config::Config config = small_config();
  config.data.crop_padding = 2;
  config.data.flip = true;
  const train::Setup setup = make_setup(config);
  const data::LoaderOptions eval = eval_loader_options(setup), train = train_loader_options(setup);
  EXPECT_FALSE(eval.endless);
  EXPECT_FALSE(eval.shuffle);
  EXPECT_EQ(eval.augment.crop_padding, 0);
  EXPECT_FALSE(eval.augment.horizontal_flip);
  EXPECT_TRUE(train.shuffle);
  EXPECT_EQ(train.augment.crop_padding, 2);
}

TEST(MakeSetup, APositionThatIsKnownBetterLaterChangesThreadsAndNothingElse) {
  config::Config config = small_config();
  config.device.threads = 0;
  train::Setup setup = make_setup(config, {.rank = 1, .processes = 2, .local_rank = 0, .local_size = 1});
  const int alone = setup.cpu_threads;
  settle_process(setup, {.rank = 1, .processes = 2, .local_rank = 1, .local_size = 1024});
  EXPECT_EQ(setup.process.local_rank, 1);
  EXPECT_EQ(setup.cpu_threads, 1);
  EXPECT_LE(setup.cpu_threads, alone);
  settle_process(setup, {.rank = 1, .processes = 2, .local_size = 2, .cores = 3.5});
  EXPECT_EQ(setup.cpu_threads, 3) << "the launcher may have bound it to cores of its own";
  EXPECT_EQ(setup.devices.size(), 1U);
  EXPECT_EQ(setup.total_steps, make_setup(config).total_steps);
}

// It was given up two seconds before its time.
TEST(LivenessOptions, AProcessMayBeSilentForAsLongAsIsConfigured) {
  config::Config config = small_config();
  config.replicas.hang_timeout_s = 8;
  EXPECT_EQ(liveness_options(config).peer_timeout, std::chrono::seconds(8));
}

}  // namespace
}  // namespace sluice::train
