// What measuring gives, apart from how long things take: structure, bytes against other ways to count them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "core/error.h"
#include "measure/fingerprint_of.h"
#include "measure/layer_bench.h"
#include "measure/measure_layers.h"
#include "measure/measure_links.h"
#include "measure/measure_update.h"
#include "nn/weight_queue.h"
#include "pipeline/saved_tensors.h"
#include "support/files.h"
#include "task/text_tasks.h"
#include "train/plan/choose_plan.h"
#include "train/study/profile.h"
#include "tune/memory.h"

namespace sluice::train {
namespace {

using pipeline::storage_of;
using profiler::MeasuredLayer;
using testing::ElementsAre;

Setup setup_of(
    const std::string& model, const std::function<void(config::Config&)>& change = [](auto&) {}) {
  config::Config config;
  config.device.list.choice = "cpu";
  config.device.threads = 1;
  config.data.name = "shapes";
  config.data.samples = 64;
  config.model.name = model;
  config.model.size = "nano";
  config.model.image_size = model == "vit" ? 32 : 16;
  config.train.global_batch = 8;
  config.train.optimizer = "adamw";
  change(config);
  return make_setup(config);
}

std::vector<MeasuredLayer> measure(const Setup& setup, std::vector<std::int64_t> sizes) {
  return measure::measure_layers(workload_of(setup),
                                 {.sizes = std::move(sizes), .least_rounds = 1, .most_rounds = 1, .needed_size = 1});
}

std::vector<LayerCost> costs_of(const std::vector<MeasuredLayer>& layers) {
  return profiler::LayerProfile{.layers = layers}.costs();
}

// What a stage of these layers keeps of one micro-batch, counted in one pass through all of them.
std::uint64_t kept_in_one_pass(const std::vector<nn::Layer*>& layers, const at::Tensor& input) {
  nn::WeightGradQueue queue;
  nn::ForwardContext context{.training = true, .sample_ids = at::arange(input.size(0)), .weight_queue = &queue};
  at::Tensor output = input;
  std::map<const void*, std::uint64_t> storages;
  for (const at::Tensor& tensor : pipeline::tensors_saved_by([&] {
         for (nn::Layer* layer : layers) output = layer->forward(output, context);
       })) {
    if (tensor.defined()) storages[storage_of(tensor)] = tensor.storage().nbytes();
  }
  // The first stage keeps its input only where a layer saves it.
  if (input.requires_grad()) storages[storage_of(input)] = input.storage().nbytes();
  for (nn::Layer* layer : layers) {
    for (const nn::Parameter* parameter : layer->parameters()) storages.erase(storage_of(parameter->value));
    for (const nn::Buffer* buffer : layer->buffers()) storages.erase(storage_of(buffer->value));
  }
  std::uint64_t bytes = 0;
  for (const auto& [storage, of_storage] : storages) bytes += of_storage;
  return bytes;
}

TEST(SizesToProfile, PowersOfTwoFromASixteenthOfTheMicroBatchAndAtLeastFour) {
  EXPECT_THAT(measure::sizes_to_profile(1), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(measure::sizes_to_profile(2), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(measure::sizes_to_profile(3), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(measure::sizes_to_profile(8), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(measure::sizes_to_profile(24), ElementsAre(1, 2, 4, 8, 16, 24));
  EXPECT_THAT(measure::sizes_to_profile(8, 8), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(measure::sizes_to_profile(8, 40), ElementsAre(1, 2, 4, 8, 16, 32)) << "doubles up to 40";
  EXPECT_THAT(measure::sizes_to_profile(4, 1000), ElementsAre(1, 2, 4, 8, 16, 32, 64)) << "at most 16 times";
  EXPECT_THAT(measure::sizes_to_profile(32), ElementsAre(2, 4, 8, 16, 32));
  EXPECT_THAT(measure::sizes_to_profile(100), ElementsAre(8, 16, 32, 64, 100));
}

TEST(AffordableSize, IsHalvedUntilTwoPassesOfItFitTheBudget) {
  EXPECT_EQ(measure::affordable_size(1024, 0.001, 5), 1024);
  EXPECT_EQ(measure::affordable_size(1024, 0.01, 6), 256) << "two passes of 512 would take 10.24 s";
  EXPECT_EQ(measure::affordable_size(100, 1.0, 5), 16) << "a few samples are measured anyway";
  EXPECT_EQ(measure::affordable_size(7, 1000.0, 0), 7);
  EXPECT_EQ(measure::affordable_size(std::int64_t{1} << 60, 1.0, 100), 32);
}

TEST(SizesWithin, LeavesOutTheLargestThatTakeTooLong) {
  const std::vector<std::int64_t> sizes{1, 2, 4, 8, 16};
  EXPECT_EQ(measure::sizes_within(sizes, 0.1, 2, 6.2), sizes) << "31 samples";
  EXPECT_THAT(measure::sizes_within(sizes, 0.1, 2, 6.1), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(measure::sizes_within(sizes, 0.1, 3, 2.2), ElementsAre(1, 2, 4));
  EXPECT_THAT(measure::sizes_within(sizes, 1000, 9, 0.1), ElementsAre(1, 2)) << "a line needs two";
  EXPECT_THAT(measure::sizes_within({16}, 1000, 9, 0.1), ElementsAre(16));
}

TEST(MeasureLayersWithin, ALimitThatIsTooShortForAllLeavesTheSmallestSizes) {
  const train::Setup setup = setup_of("toy_cnn");
  const auto measured = measure::measure_layers(workload_of(setup), {.sizes = {1, 2, 4, 8, 16},
                                                                     .least_rounds = 5,
                                                                     .most_rounds = 40,
                                                                     .budget_s = 10,
                                                                     .needed_size = 8,
                                                                     .limit_s = 1e-6,
                                                                     .most_samples = 16});
  for (const MeasuredLayer& layer : measured) {
    ASSERT_EQ(layer.times.size(), 2U) << layer.name;
    EXPECT_EQ(layer.times.back().samples, 2);
    EXPECT_FALSE(layer.bytes.empty());
    EXPECT_GT(layer.cost.forward.at(8), 0);
    EXPECT_GT(layer.cost.output_bytes, 0U);
  }
}

class MeasureLayers : public testing::TestWithParam<const char*> {};

TEST_P(MeasureLayers, GivesEveryLayerItsTimesAndBytes) {
  const train::Setup setup = setup_of(GetParam());
  models::Model model = models::make_model(setup.model);
  const auto measured = measure(setup, {1, 2, 4});
  ASSERT_EQ(measured.size(), model.layers.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const LayerCost& cost = measured[i].cost;
    EXPECT_EQ(measured[i].name, model.layers[i]->name());
    std::uint64_t parameter_bytes = 0, buffer_bytes = 0;
    bool has_maps = false;  // convolutions or linear maps
    for (const nn::Parameter* parameter : model.layers[i]->parameters()) {
      parameter_bytes += parameter->value.numel() * sizeof(float);
      has_maps = has_maps || (parameter->value.dim() >= 2 && parameter->name.ends_with("weight"));
    }
    for (const nn::Buffer* buffer : model.layers[i]->buffers()) buffer_bytes += buffer->value.nbytes();
    EXPECT_EQ(cost.parameter_bytes, parameter_bytes) << measured[i].name;
    EXPECT_EQ(cost.buffer_bytes, buffer_bytes) << measured[i].name;
    EXPECT_EQ(cost.gradient_bytes, parameter_bytes);
    EXPECT_EQ(cost.optimizer_bytes, 2 * parameter_bytes) << "adamw keeps two moments";
    EXPECT_EQ(measured[i].defers_weights, has_maps) << measured[i].name;
    EXPECT_GT(cost.forward.at(3), 0);
    EXPECT_EQ(cost.weight_gradient.at(3) > 0, has_maps) << measured[i].name;
    if (i > 0) {
      EXPECT_EQ(cost.input_bytes, measured[i - 1].cost.output_bytes);
    }
    ASSERT_EQ(measured[i].times.size(), 3U);
    for (std::size_t size = 0; size < 3; ++size) EXPECT_EQ(measured[i].times[size].samples, 1 << size);
  }
  EXPECT_EQ(measured.front().cost.input_bytes, 3 * setup.model.image_size * setup.model.image_size * sizeof(float));
  EXPECT_EQ(measured.back().cost.output_bytes, 10 * sizeof(float));
}

TEST_P(MeasureLayers, SavedBytesAddUpToThoseOfAPassThroughWholeStages) {
  const train::Setup setup = setup_of(GetParam());
  const std::vector<LayerCost> costs = costs_of(measure(setup, {4}));
  models::Model model = models::make_model(setup.model);
  std::vector<nn::Layer*> layers;
  for (const auto& layer : model.layers) layers.push_back(layer.get());
  // From the front, and from the middle: the input of a later stage needs a gradient.
  constexpr std::int64_t kSamples = 6;  // not measured
  std::vector<std::int64_t> shape = model.inputs.front().sizes;
  shape.insert(shape.begin(), kSamples);
  EXPECT_EQ(static_cast<std::uint64_t>(tune::live_bytes(costs, kSamples, {.is_first = true}).activation),
            kept_in_one_pass(layers, at::randn(shape)));
  const std::size_t half = layers.size() / 2;
  at::Tensor middle = at::randn(shape);
  for (std::size_t i = 0; i < half; ++i)
    middle = layers[i]->forward(middle, {.training = true, .sample_ids = at::arange(kSamples)}).detach();
  EXPECT_EQ(static_cast<std::uint64_t>(tune::live_bytes(std::span(costs).subspan(half), kSamples, {}).activation),
            kept_in_one_pass({layers.begin() + static_cast<std::ptrdiff_t>(half), layers.end()},
                             middle.detach().requires_grad_(true)));
}

INSTANTIATE_TEST_SUITE_P(Models, MeasureLayers, testing::Values("mlp", "toy_cnn", "resnet8", "vit"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(MeasureLayersOnce, OneSizeGivesCostsThatAreRightAtThatSize) {
  const auto measured = measure(setup_of("mlp"), {4});
  for (const MeasuredLayer& layer : measured) {
    EXPECT_EQ(layer.cost.forward.a_s, 0);
    EXPECT_NEAR(layer.cost.forward.at(4), layer.times.at(0).forward_s, 1e-15);
  }
}

TEST(MeasureLayersOnce, SizesThatAreNoneAreOurBug) {
  const train::Setup setup = setup_of("mlp");
  EXPECT_THROW(static_cast<void>(measure(setup, {})), BugError);
  EXPECT_THROW(static_cast<void>(measure(setup, {0, 1})), BugError);
  EXPECT_THROW(static_cast<void>(measure(setup, {2, 1})), BugError);
}

TEST(MeasureLinks, AnActivationIsHandedOverBetweenCpuDevices) {
  const train::Setup setup = setup_of("mlp", [](auto& config) {
    config.pipeline.stages = 3;
    config.pipeline.partition = std::vector<int>{1, 1, 1};
  });
  const auto links = measure::measure_stage_links(setup.devices, {0, 1, 2}, setup.cpu_threads);
  ASSERT_EQ(links.size(), 2U);
  EXPECT_EQ(links[1].from_stage, 1);
  EXPECT_EQ(links[1].to_stage, 2);
  EXPECT_EQ(links[1].from_device, "cpu:1");
  EXPECT_EQ(links[1].to_device, "cpu:2");
  for (const profiler::StageLink& link : links) {
    EXPECT_GT(link.cost.latency_s, 0);
    EXPECT_FALSE(link.cost.bytes_per_s.has_value());
  }
}

// A clock on which each way takes 3 ms: between two looks at it an activation has gone there and back.
TEST(MeasureLinks, AHopIsHalfOfTheWayThereAndBack) {
  const device::Device cpu0{device::DeviceKind::kCpu, 0}, cpu1{device::DeviceKind::kCpu, 1};
  constexpr double kWay_s = 3e-3;
  const auto clock = [now = Nanoseconds{0}]() mutable { return now += from_s(2 * kWay_s); };
  const auto links = measure::measure_stage_links({cpu0, cpu1}, {0, 1}, /*cpu_threads=*/1, clock);
  ASSERT_EQ(links.size(), 1U);
  EXPECT_NEAR(links[0].cost.latency_s, kWay_s, 1e-9);
}

TEST(MeasureLinks, GradientsAreAddedUpOnlyOverSeveralReplicas) {
  const device::Device cpu0{device::DeviceKind::kCpu, 0}, cpu1{device::DeviceKind::kCpu, 1};
  EXPECT_FALSE(measure::measure_all_reduce({.devices = {cpu0}}, 1 << 20).has_value());
  const auto link = measure::measure_all_reduce({.devices = {cpu0, cpu1}}, std::uint64_t{8} << 20);
  ASSERT_TRUE(link.has_value());
  EXPECT_EQ(link->local_replicas, 2);
  EXPECT_EQ(link->processes, 1);
  ASSERT_TRUE(link->cost.bytes_per_s.has_value()) << "adding 8 MiB takes longer than 4 KiB";
  EXPECT_GT(link->cost.at(8 << 20), link->cost.at(4096));
}

TEST(MeasureUpdate, MoreWeightsTakeLonger) {
  for (const std::string optimizer : {"sgd", "momentum", "rmsprop", "adamw"}) {
    const train::Setup setup = setup_of("mlp", [&](auto& config) { config.train.optimizer = optimizer; });
    const AffineCost update = measure::measure_update(workload_of(setup), std::uint64_t{16} << 20);
    EXPECT_GT(update.b_s, 0) << optimizer;
    EXPECT_GT(update.at(16 << 20), 2 * update.at(4096)) << optimizer;
  }
}

// How many values the gradients had that were zeroed, by LibTorch's own account.
TEST(MeasureUpdate, TimesSizesUpToTheLargest) {
  static std::mutex mutex;
  static std::set<std::int64_t> zeroed;
  const auto see = [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
    if (std::string_view(call.name()) != "aten::zero_" || !call.inputs()[0].isTensor()) return nullptr;
    const at::Tensor& tensor = call.inputs()[0].toTensor();
    const std::scoped_lock lock(mutex);
    if (tensor.scalar_type() == at::kFloat) zeroed.insert(tensor.numel());
    return nullptr;
  };
  const at::CallbackHandle handle =
      at::addGlobalCallback(at::RecordFunctionCallback(+see).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  const train::Setup setup = setup_of("mlp", [](auto& config) { config.train.optimizer = "sgd"; });
  (void)measure::measure_update(workload_of(setup), 100'000);
  at::removeCallback(handle);
  EXPECT_THAT(zeroed, ElementsAre(4096 / 4, 32'768 / 4, 100'000 / 4));
}

TEST(FingerprintOf, NamesMachineSoftwareAndModel) {
  const profiler::Fingerprint fingerprint = measure::fingerprint_of(workload_of(setup_of("vit")), "9.9");
  EXPECT_FALSE(fingerprint.cpu.empty());
  EXPECT_GE(fingerprint.cores, 1);
  EXPECT_GT(fingerprint.memory_bytes, 0U);
  EXPECT_EQ(fingerprint.threads_per_device, 1);
  EXPECT_EQ(fingerprint.device, "cpu:0");
  EXPECT_EQ(fingerprint.sluice, "9.9");
  EXPECT_EQ(fingerprint.precision, "fp32");
  EXPECT_EQ(fingerprint.winograd, std::nullopt);
  EXPECT_EQ(fingerprint.optimizer, "adamw");
  EXPECT_EQ(fingerprint.model.name, "vit");
  EXPECT_EQ(fingerprint.model.size, "nano");
  EXPECT_EQ(fingerprint.model.image_size, 32);
}

TEST(FingerprintOf, HoldsTheContentOfTheModelsConfiguration) {
  const test::TempDir dir;
  const auto hash_of = [&](std::int64_t blocks) {
    models::TextConfig config = models::text_config(models::ModelOptions({.name = "llama", .size = "nano"}));
    config.blocks = blocks;
    test::spill(dir / "config.json", models::config_json(config, 0));
    measure::Workload workload = workload_of(setup_of("mlp"));
    workload.model = models::ModelOptions({.name = "llama", .config = dir / "config.json"});
    return profiler::short_hash(measure::fingerprint_of(workload, "9.9"));
  };
  EXPECT_EQ(hash_of(2), hash_of(2));
  EXPECT_NE(hash_of(2), hash_of(3));
}

TEST(FingerprintOf, NamesTheLengthAndTheInputsOfTexts) {
  measure::Workload workload = workload_of(setup_of("mlp"));
  workload.model = models::ModelOptions({.name = "bert", .size = "nano"});
  workload.tokens = 12;
  workload.optional_inputs = {"inputs", "mask", "targets"};
  const profiler::Fingerprint fingerprint = measure::fingerprint_of(workload, "9.9");
  EXPECT_EQ(fingerprint.model.context, 12);
  EXPECT_EQ(fingerprint.inputs, std::vector<std::string>{"mask"});
  EXPECT_EQ(fingerprint.usual_tokens, std::nullopt);
  workload.usual_tokens = 8;
  EXPECT_EQ(measure::fingerprint_of(workload, "9.9").usual_tokens, 8);
}

TEST(MeasureTexts, TimesUsualTextsAndCountsTheBytesOfTheLongest) {
  measure::Workload workload{.model = models::ModelOptions({.name = "llama", .size = "nano"}),
                             .task = task::make_text_language_model(),
                             .tokens = 24};
  const auto tokens_of = [](measure::LayerBench& bench) {
    std::int64_t tokens = 0;
    bench.run(2, /*defers_weights=*/false, [&](auto part, std::size_t i, const std::function<void()>& work) {
      work();
      if (part == measure::LayerBench::Part::kForward && i == 0) tokens = bench.running(0).outputs.front().size(1);
    });
    return tokens;
  };
  const measure::LayerMeasurement what{.sizes = {1, 2}, .least_rounds = 1, .most_rounds = 1, .needed_size = 2};
  const std::vector<MeasuredLayer> longest = measure::measure_layers(workload, what);
  workload.usual_tokens = 8;
  measure::LayerBench bench(workload);
  EXPECT_EQ(tokens_of(bench), 8);
  bench.use_longest(true);
  EXPECT_EQ(tokens_of(bench), 24);
  bench.use_longest(false);
  EXPECT_EQ(tokens_of(bench), 8);
  const std::vector<MeasuredLayer> usual = measure::measure_layers(workload, what);
  const std::vector<LayerCost> bytes = measure::measure_layer_bytes(workload, 2);
  for (std::size_t i = 0; i < usual.size(); ++i) {
    for (const LayerCost& cost : {usual[i].cost, bytes[i]}) {
      EXPECT_EQ(cost.output_bytes, longest[i].cost.output_bytes) << usual[i].name;
      EXPECT_EQ(cost.saved_bytes, longest[i].cost.saved_bytes) << usual[i].name;
      EXPECT_EQ(cost.working, longest[i].cost.working) << usual[i].name;
    }
  }
}

TEST(FingerprintOf, NamesThePrecisionInWhichLayersCompute) {
  for (const std::string name : {"fp32", "bf16", "fp64"}) {
    const train::Setup setup = setup_of("mlp", [&](auto& config) { config.train.precision = name; });
    EXPECT_EQ(measure::fingerprint_of(workload_of(setup), "9.9").precision, name);
  }
}

TEST(FingerprintOf, NamesWinogradWhereItIsNotTheUsual) {
  for (const std::string name : {"none", "4x4"}) {
    const train::Setup setup = setup_of("resnet8", [&](auto& config) { config.train.winograd = name; });
    EXPECT_EQ(measure::fingerprint_of(workload_of(setup), "9.9").winograd, name);
  }
}

TEST(FingerprintOf, NamesTf32OfAGpuInFloat32Alone) {
  const auto tf32_of = [](bool on_gpu, const std::string& precision, bool tf32) {
    const train::Setup setup = setup_of("resnet8", [&](auto& config) {
      config.train.precision = precision;
      config.device.tf32 = tf32;
    });
    measure::Workload workload = workload_of(setup);
    if (on_gpu) workload.device = {device::DeviceKind::kCuda, 0};
    return measure::fingerprint_of(workload, "9.9").tf32;
  };
  for (const bool tf32 : {true, false}) EXPECT_EQ(tf32_of(true, "fp32", tf32), std::optional(tf32));
  for (const char* precision : {"fp32", "fp64", "bf16"}) EXPECT_EQ(tf32_of(false, precision, true), std::nullopt);
  for (const char* precision : {"fp64", "bf16"}) EXPECT_EQ(tf32_of(true, precision, true), std::nullopt);
}

}  // namespace
}  // namespace sluice::train
