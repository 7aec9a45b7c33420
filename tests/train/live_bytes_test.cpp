// What stages keep between actions, counted from the tensors of whole training steps, against what the simulator counts
// from the layers' costs: equal to the byte, under every schedule that the layers are enough for, with and without
// recomputation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/loader.h"
#include "device/cpu_threads.h"
#include "engine/state.h"
#include "measure/measure_layers.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"
#include "train/plan/choose_plan.h"
#include "train/plan/composition.h"
#include "train/setup/setup.h"
#include "train/setup/step_batch.h"
#include "tune/partition.h"

namespace sluice::train {
namespace {

constexpr int kDevices = 2;
constexpr int kChunks = 6;
constexpr int kSamples = 3;  // of a micro-batch

// On one device.
config::Config config_of(const std::string& model) {
  config::Config config;
  config.device.list.choice = "cpu";
  config.device.threads = 1;
  const bool has_tokens = model == "gpt2";
  config.data.name = has_tokens ? "toy" : "shapes";
  config.data.samples = 64;
  config.data.workers = 0;
  config.model.name = model;
  config.model.size = "nano";
  if (!has_tokens) config.model.image_size = model == "vit" ? 32 : 16;
  config.train.global_batch = kChunks * kSamples;
  config.train.steps = 10;
  config.pipeline.chunks = kChunks;
  return config;
}

// Even by the number of layers.
std::vector<int> even_cut(int layers, int stages) {
  std::vector<int> counts(stages, layers / stages);
  for (int i = 0; i < layers % stages; ++i) ++counts[i];
  return counts;
}

std::vector<std::uint64_t> counted_in_steps(const Setup& setup, const Plan& plan) {
  engine::Engine engine(plan, engine_options(setup));
  engine::Composition& composition = engine.composition();
  std::vector<pipeline::LiveBytes*> live;
  for (int s = 0; s < plan.stages(); ++s)
    live.push_back(&composition.executor->stage(ReplicaId{0}, StageId{s}).count_live_bytes());
  engine::TrainStep& step = engine.step();
  data::Loader loader(*setup.train_set, train_loader_options(setup));
  for (int i = 0; i < 2; ++i) step.run(as_step_batch(*loader.next(), *setup.task), i, 0.01);
  std::vector<std::uint64_t> peaks;
  for (int s = 0; s < plan.stages(); ++s) {
    EXPECT_EQ(live[s]->current(), 0U) << "stage " << s << " keeps something after a step";
    peaks.push_back(live[s]->peak());
  }
  return peaks;
}

class LiveBytesOfSteps : public testing::TestWithParam<std::string> {};

TEST_P(LiveBytesOfSteps, AreWhatTheSimulatorCounts) {
  device::use_cpu_threads(1);
  config::Config config = config_of(GetParam());
  const train::Setup whole = make_setup(config);
  const auto costs = measure::measure_layer_bytes(workload_of(whole), kSamples + 1);  // a size that is not run
  config.pipeline.stages = kDevices;
  int plans = 0;
  for (const std::string& schedule : pipeline::schedule_names()) {
    config.pipeline.schedule = schedule;
    const int stages = kDevices * virtual_stages(config);
    if (stages > whole.layers) continue;
    config.pipeline.partition = even_cut(whole.layers, stages);
    for (const char* const recompute : {"none", "layer"}) {
      config.pipeline.recompute.all = recompute;
      const train::Setup setup = make_setup(config);
      const Plan plan = tune::make_plan(plan_request(setup), {});
      const auto predicted = tune::live_peaks(costs, pipeline::make_train_schedule(plan, plan.chunks), plan.partition,
                                              plan.recompute, kSamples);
      EXPECT_EQ(counted_in_steps(setup, plan), predicted) << schedule << ", recompute " << recompute;
      ++plans;
    }
  }
  EXPECT_GE(plans, 10) << "the schedules with a stage a device";
}

// Synchronised batch-norm keeps other tensors than the fused one.
TEST(LiveBytesOfReplicas, AreWhatTheSimulatorCountsInEveryModeOfBatchNorm) {
  device::use_cpu_threads(1);
  for (const char* const mode : {"micro", "deferred", "sync"}) {
    config::Config config = config_of("resnet8");
    config.pipeline.batch_norm = mode;
    config.replicas.local = 2;
    config.train.global_batch *= 2;
    config.pipeline.partition = even_cut(make_setup(config_of("resnet8")).layers, 1);
    const auto costs = measure::measure_layer_bytes(workload_of(make_setup(config)), kSamples + 1);
    config.pipeline.stages = kDevices;
    config.pipeline.partition = even_cut(static_cast<int>(costs.size()), kDevices);
    const train::Setup setup = make_setup(config);
    const Plan plan = tune::make_plan(plan_request(setup), {});
    const auto predicted = tune::live_peaks(costs, pipeline::make_train_schedule(plan, plan.chunks), plan.partition,
                                            plan.recompute, kSamples);
    EXPECT_EQ(counted_in_steps(setup, plan), predicted) << mode;
  }
}

storage::TensorMap gradients_of_a_step(const Setup& setup, const Plan& plan, bool counts) {
  engine::Engine engine(plan, engine_options(setup));
  engine::Composition& composition = engine.composition();
  for (int r = 0; counts && r < plan.replicas; ++r) {
    for (int s = 0; s < plan.stages(); ++s) composition.executor->stage(ReplicaId{r}, StageId{s}).count_live_bytes();
  }
  engine::TrainStep& step = engine.step();
  data::Loader loader(*setup.train_set, train_loader_options(setup));
  step.compute_gradients(as_step_batch(*loader.next(), *setup.task), 0, plan.chunks);
  storage::TensorMap gradients;
  for (const auto& [name, tensor] : engine::gradient_tensors(composition)) gradients[name] = tensor.clone();
  return gradients;
}

// Also those of weights that are deferred, with uneven micro-batches, two replicas and stages that differ.
TEST_P(LiveBytesOfSteps, CountingChangesNoGradient) {
  device::use_cpu_threads(1);
  config::Config config = config_of(GetParam());
  const int layers = make_setup(config).layers;
  config.train.global_batch = 2 * kChunks * kSamples + 5;
  config.replicas.local = 2;
  config.pipeline.stages = kDevices;
  config.pipeline.schedule = "zb-h1";
  config.pipeline.partition = even_cut(layers, kDevices);
  const train::Setup setup = make_setup(config);
  Plan plan = tune::make_plan(plan_request(setup), {});
  plan.recompute = {false, true};
  const storage::TensorMap plain = gradients_of_a_step(setup, plan, false),
                           counted = gradients_of_a_step(setup, plan, true);
  ASSERT_EQ(plain.size(), counted.size());
  for (const auto& [name, gradient] : plain) EXPECT_TRUE(at::equal(gradient, counted.at(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(Models, LiveBytesOfSteps, testing::Values("mlp", "toy_cnn", "resnet8", "vit", "gpt2"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace sluice::train
