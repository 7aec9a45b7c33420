// CUDA graphs on a GPU: steps whose actions were recorded and run again give the gradients, parameters and running
// statistics of one CPU device in float64, to 1e-10, and those of plain steps of the GPU in float32. Skips without a
// GPU; which steps those are, and what reaches them: step_graphs_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iostream>

#include "core/concat.h"
#include "core/error.h"
#include "engine/reference.h"
#include "engine/train_step.h"
#include "pipeline/schedule/generators.h"

namespace sluice::engine::test {
namespace {

constexpr double kTolerance = 1e-10, kFloat32Tolerance = 2e-5, kLr = 0.05;
constexpr std::uint64_t kSeed = 7;
constexpr device::Device kGpu{device::DeviceKind::kCuda, 0};
const optim::OptimizerOptions kOptimizer{.kind = "momentum", .momentum = 0.9, .weight_decay = 0.01};
constexpr std::array<std::int64_t, 7> kSamples{13, 13, 13, 13, 5, 13, 13};

struct Case {
  std::string model;
  std::string schedule;
  int stages;
  int replicas;
  bool recompute;
};

Composition grid_of(const Case& c, const models::ModelOptions& model) {
  Plan plan{.replicas = c.replicas, .schedule = c.schedule};
  plan.recompute.assign(c.stages, c.recompute);
  const std::vector<device::Device> devices(static_cast<std::size_t>(c.stages) * c.replicas, kGpu);
  Composition grid = make_grid(model, plan, c.stages, kOptimizer, devices);
  grid.plan.chunks = c.model == "resnet8" ? 1 : 3;  // the reference normalises the whole batch
  return grid;
}

// As many as have been recorded.
class CountedGraphs final : public device::GraphSequence {
 public:
  CountedGraphs(const device::Stream& stream, std::atomic<int>& records)
      : graphs_(device::make_graph_sequence(stream)), records_(records) {}
  [[nodiscard]] std::unique_ptr<device::Graph> record(const std::vector<at::Tensor>& inputs,
                                                      const device::GraphWork& work) override {
    ++records_;
    return graphs_->record(inputs, work);
  }

 private:
  std::unique_ptr<device::GraphSequence> graphs_;
  std::atomic<int>& records_;
};

class CudaGraphs : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  }

  [[nodiscard]] TrainStepOptions options() {
    return {.seed = kSeed, .make_graphs = [this](const device::Stream& stream) {
              return std::make_unique<CountedGraphs>(stream, records_);
            }};
  }

  std::atomic<int> records_ = 0;
};

TEST_P(CudaGraphs, UpdatesGiveTheTensorsOfOneCpuDevice) {
  const Case& c = GetParam();
  const models::ModelOptions model = small_model(c.model, c.model == "vit" ? 0.2 : 0);
  ReferenceModel one_device(model);
  Composition grid = grid_of(c, model);
  TrainStep step(grid, options());
  std::int64_t number = 0;
  for (const std::int64_t samples : kSamples) {
    const pipeline::MicroBatch batch = make_batch(samples, number + 1);
    const nn::ForwardContext context{.training = true, .seed = kSeed, .step = number};
    const double loss = one_device.train(batch, context, kOptimizer, kLr);
    EXPECT_NEAR(step.run(batch, number, kLr).loss, loss, kTolerance * loss) << "step " << number;
    ++number;
  }
  const auto [error, tensor] = worst_error(model_tensors(grid), one_device.tensors());
  EXPECT_LE(error, kTolerance) << tensor;
  EXPECT_GE(records_, c.stages * c.replicas * grid.plan.chunks * 2);
}

// By our own kernels, which read the number of the step there.
TEST_P(CudaGraphs, Float32UpdatesGiveThoseOfPlainSteps) {
  const Case& c = GetParam();
  const models::ModelOptions model(small_model(c.model, c.model == "vit" ? 0.2 : 0), at::kFloat, /*seed=*/11);
  Composition grid = grid_of(c, model), plain_grid = grid_of(c, model);
  TrainStep step(grid, options());
  TrainStep plain(plain_grid, {.seed = kSeed});
  std::int64_t number = 0;
  for (const std::int64_t samples : kSamples) {
    pipeline::MicroBatch batch = make_batch(samples, number + 1);
    batch.inputs[0] = batch.inputs[0].to(at::kFloat);
    const double loss = plain.run(batch, number, kLr).loss;
    EXPECT_NEAR(step.run(batch, number, kLr).loss, loss, kFloat32Tolerance * loss) << "step " << number;
    ++number;
  }
  const auto [error, tensor] = worst_error(model_tensors(grid), model_tensors(plain_grid));
  EXPECT_LE(error, kFloat32Tolerance) << tensor;
}

// Of many micro-batches that wait for the GPU, what one slot reads must not be written over while another one records.
TEST(CudaGraphsTest, TheStepThatRecordsIsAsAPlainOne) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  const Case c{"vit", "gpipe", 2, 1, false};
  const models::ModelOptions model(small_model(c.model, 0.2), at::kFloat, /*seed=*/11);
  Composition grid = grid_of(c, model), plain_grid = grid_of(c, model);
  grid.plan.chunks = plain_grid.plan.chunks = 32;
  TrainStep plain(plain_grid, {.seed = kSeed});
  for (int repeat = 0; repeat < 10; ++repeat) {
    TrainStep step(grid, {.seed = kSeed, .make_graphs = device::make_graph_sequence});
    for (std::int64_t number = 0; number < 3; ++number) {  // the second one records
      pipeline::MicroBatch batch = make_batch(4096, number + 1);
      batch.inputs[0] = batch.inputs[0].to(at::kFloat);
      static_cast<void>(plain.compute_gradients(batch, number, plain_grid.plan.chunks, {}));
      static_cast<void>(step.compute_gradients(batch, number, grid.plan.chunks, {}));
      const auto [error, tensor] = worst_error(gradient_tensors(grid), gradient_tensors(plain_grid));
      EXPECT_LE(error, kFloat32Tolerance) << tensor << " of step " << number;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, CudaGraphs,
                         testing::Values(Case{"vit", "1f1b", 1, 1, false}, Case{"vit", "1f1b", 3, 2, false},
                                         Case{"vit", "zb-h1", 2, 2, false}, Case{"vit", "gpipe", 2, 1, true},
                                         Case{"toy_cnn", "zb-h1", 2, 2, false}, Case{"resnet8", "1f1b", 3, 1, false}),
                         [](const auto& param_info) {
                           const Case& c = param_info.param;
                           return concat(c.model, "_", c.schedule == "zb-h1" ? "split" : c.schedule, "_", c.stages,
                                         "stages_", c.replicas, "replicas", c.recompute ? "_recompute" : "");
                         });

// Asks the GPU for a number.
class WaitingLayer final : public nn::Layer {
 public:
  WaitingLayer() : Layer("waiting") {}
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext&) override {
    return input + input.sum().item<double>() * 0;
  }
};

pipeline::LayerList waiting_layers() {
  pipeline::LayerList layers = models::make_model(small_model("toy_cnn")).layers;
  layers.insert(layers.begin(), std::make_unique<WaitingLayer>());
  return layers;
}

[[noreturn]] void train_what_waits() {
  const Plan plan{.partition = {{static_cast<int>(waiting_layers().size())}}};
  Composition grid = compose(
      plan, {.model_name = "waiting", .make_layers = waiting_layers, .devices = {kGpu}, .optimizer = kOptimizer});
  TrainStep step(grid, {.seed = kSeed, .make_graphs = device::make_graph_sequence});
  try {
    for (std::int64_t number = 0; number < 2; ++number) static_cast<void>(step.run(make_batch(8), number, kLr));
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    std::_Exit(static_cast<int>(error.exit_code()));
  }
  std::_Exit(0);
}

// In a process of its own: what LibTorch's allocator is good for after that, nobody knows.
TEST(CudaGraphsDeathTest, WhatWaitsForTheGpuEndsTheRunAndIsNamed) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(train_what_waits(), testing::ExitedWithCode(2), "stage 0 at action 0F0 .*cannot be recorded as a CUDA");
}

}  // namespace
}  // namespace sluice::engine::test
