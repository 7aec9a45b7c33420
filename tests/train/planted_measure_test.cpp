// Measuring finds what is planted: layers that sleep, forward, for the input's gradient and for the weights', and
// samples that take a while to read. Nothing sleeps shorter than it is told, so that all bounds hold on any machine.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/clock.h"
#include "measure/measure_layers.h"
#include "measure/measure_loading.h"
#include "measure/measure_server.h"
#include "measure/measure_slowdowns.h"
#include "models/family.h"
#include "nn/weight_queue.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

using profiler::MeasuredLayer;
using std::chrono::milliseconds;

constexpr std::int64_t kClasses = 4;

struct Sleeps {
  milliseconds forward{0}, input{0}, weight{0};
};
constexpr std::array<Sleeps, 2> kSleeps{
    {{milliseconds(4), milliseconds(2), milliseconds(6)}, {milliseconds(8), milliseconds(10), milliseconds(3)}}};

double seconds_of(milliseconds time) { return std::chrono::duration<double>(time).count(); }

// A product with a weight, whose gradient is deferred where there is a queue for it.
class SleepyHalves : public torch::autograd::Function<SleepyHalves> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const Sleeps* sleeps, nn::WeightGradQueue* queue) {
    std::this_thread::sleep_for(sleeps->forward);
    ctx->save_for_backward({x, weight});
    ctx->saved_data["sleeps"] = reinterpret_cast<std::int64_t>(sleeps);
    ctx->saved_data["queue"] = reinterpret_cast<std::int64_t>(queue);
    return x * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto* sleeps = reinterpret_cast<const Sleeps*>(ctx->saved_data["sleeps"].toInt());
    auto* queue = reinterpret_cast<nn::WeightGradQueue*>(ctx->saved_data["queue"].toInt());
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    std::this_thread::sleep_for(sleeps->input);
    const auto of_weight = [sleeps, product = (grads[0] * saved[0]).sum(0)] {
      std::this_thread::sleep_for(sleeps->weight);
      return product;
    };
    if (queue == nullptr) return {grads[0] * saved[1], of_weight(), {}, {}};
    queue->push({saved[1]}, {}, [of_weight] { (void)of_weight(); });
    return {grads[0] * saved[1], {}, {}, {}};
  }
};

class SleepyHalvesLayer final : public nn::Layer {
 public:
  SleepyHalvesLayer(const std::string& name, const Sleeps& sleeps)
      : Layer(name), weight_{name + ".weight", at::ones({kClasses}).requires_grad_()}, sleeps_(&sleeps) {}
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext& context) override {
    const at::Tensor rows = input.flatten(1).narrow(1, 0, kClasses);
    return SleepyHalves::apply(rows, weight_.value, sleeps_, context.weight_queue);
  }
  std::vector<nn::Parameter*> parameters() override { return {&weight_}; }

 private:
  nn::Parameter weight_;
  const Sleeps* sleeps_;
};

models::Layers make_sleepy(const models::ModelOptions&) {
  models::Layers layers;
  for (const Sleeps& sleeps : kSleeps)
    layers.push_back(std::make_unique<SleepyHalvesLayer>(concat("l", layers.size()), sleeps));
  return layers;
}

// Two threads: of one alone its processor time would count, and who sleeps takes none.
measure::Workload sleepy_workload() {
  static std::once_flag once;
  std::call_once(once, [] { models::add_family({.name = "sleepy", .make = make_sleepy}); });
  measure::Workload workload{.layers = 2, .threads = 2};
  workload.model.name = "sleepy";
  workload.model.classes = kClasses;
  workload.model.image_size = 8;
  return workload;
}

TEST(PlantedMeasure, ALayersTimesHaveAllItsParts) {
  const auto measured = measure::measure_layers(
      sleepy_workload(),
      {.sizes = {1, 2}, .least_rounds = 1, .most_rounds = 1, .needed_size = 2, .with_memory = false});
  ASSERT_EQ(measured.size(), kSleeps.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    ASSERT_EQ(measured[i].times.size(), 2U);
    for (const profiler::LayerTimes& times : measured[i].times) {
      EXPECT_GE(times.forward_s, seconds_of(kSleeps[i].forward)) << i << ", of the last one with its loss";
      EXPECT_GE(times.input_gradient_s, seconds_of(kSleeps[i].input)) << i;
      EXPECT_GE(times.weight_gradient_s, seconds_of(kSleeps[i].weight)) << i;
      EXPECT_GE(times.backward_s, seconds_of(kSleeps[i].input + kSleeps[i].weight)) << i << ", a whole one";
    }
  }
}

TEST(PlantedMeasure, SlowSizesAreLeftOutButNoneUpToTheOneThatIsNeeded) {
  const auto measured = measure::measure_layers(sleepy_workload(), {.sizes = {1, 2, 4, 8},
                                                                    .least_rounds = 1,
                                                                    .most_rounds = 1,
                                                                    .budget_s = 1e-6,
                                                                    .needed_size = 4,
                                                                    .with_memory = false});
  std::vector<std::int64_t> sizes;
  for (const profiler::LayerTimes& times : measured.at(0).times) sizes.push_back(times.samples);
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{1, 2, 4}));
}

// Beside costs of half of what the layers sleep, forward and backward together.
TEST(PlantedMeasure, ASlowdownIsOfForwardAndBackward) {
  std::vector<MeasuredLayer> alone(kSleeps.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    alone[i].cost.forward.a_s = seconds_of(kSleeps[i].forward) / 2;
    alone[i].cost.backward.a_s = seconds_of(kSleeps[i].input + kSleeps[i].weight) / 2;
  }
  for (const double slowdown : measure::measure_slowdowns(sleepy_workload(), /*devices=*/2, /*samples=*/2, alone))
    EXPECT_GE(slowdown, 2);
}

// Every read sleeps.
class SleepyDataset final : public data::Dataset {
 public:
  static constexpr milliseconds kRead{5};

  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return 64; }
  void read(std::int64_t, std::span<std::uint8_t> pixels) const override {
    std::this_thread::sleep_for(kRead);
    std::ranges::fill(pixels, std::uint8_t{0});
    ++reads_;
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return index % kClasses; }
  [[nodiscard]] int reads() const { return reads_; }

 private:
  data::DatasetInfo info_{.name = "sleepy",
                          .channels = 3,
                          .height = 8,
                          .width = 8,
                          .classes = kClasses,
                          .mean = {0, 0, 0},
                          .stddev = {1, 1, 1}};
  mutable int reads_ = 0;  // threads = 0: by the thread that calls next()
};

TEST(PlantedMeasure, LoadingIsOfOneSample) {
  constexpr int kBatch = 4;
  config::Config config;
  config.device.list.choice = "cpu";
  config.model.name = "mlp";
  config.model.image_size = 8;
  config.data.name = "shapes";
  config.data.samples = 64;
  config.train.global_batch = kBatch;
  train::Setup setup = make_setup(config);
  const auto dataset = std::make_shared<SleepyDataset>();
  setup.train_set = dataset;
  const Nanoseconds begin = now_ns();
  const LoadCost cost = measure::measure_loading(*setup.train_set, train_loader_options(setup));
  const double seconds = to_s(now_ns() - begin);
  EXPECT_GE(cost.sample_s, seconds_of(SleepyDataset::kRead)) << "waiting is part of it";
  EXPECT_LT(cost.cpu_s, cost.sample_s);
  // No less than half of the batches after the first took as long as the median.
  const int batches = dataset->reads() / kBatch - 1;
  EXPECT_LE(cost.sample_s * kBatch * ((batches + 1) / 2), seconds);
}

// Of a server whose updates take long: none of it is push, pull or what a second push costs.
TEST(PlantedMeasure, AnUpdateOfAServerIsNoPushOrPull) {
  static constexpr milliseconds kUpdate(30);
  constexpr std::uint64_t kBytes = 4096;
  const measure::ServerSetup setup{.device = {device::DeviceKind::kCpu, 0},
                                   .bucket_bytes = kBytes,
                                   .server = {.optimizer = {.kind = "sgd"}, .lr = [](const ps::ServerProgress&) {
                                                std::this_thread::sleep_for(kUpdate);
                                                return 1e-3;
                                              }}};
  const ServerCost cost = measure::measure_server(setup, kBytes);
  EXPECT_GE(cost.update.at(kBytes), seconds_of(kUpdate));
  EXPECT_GT(cost.push.at(kBytes), 0);
  EXPECT_GT(cost.pull.at(kBytes), 0);
  EXPECT_LT(cost.push.at(kBytes) + cost.pull.at(kBytes), cost.update.at(kBytes));
  EXPECT_LT(cost.merge.at(kBytes), seconds_of(kUpdate));
}

}  // namespace
}  // namespace sluice::train
