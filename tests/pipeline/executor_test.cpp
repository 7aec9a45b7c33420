#include "pipeline/executor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "ddp/reducer.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/validate.h"
#include "support/toy_model.h"

namespace sluice::pipeline {
namespace {

constexpr int kLayers = 5;
constexpr int kWidth = 6;

// Gradients of the mean loss over the whole batch: one device, no micro-batches.
std::vector<at::Tensor> plain_gradients(const MicroBatch& batch) {
  const auto layers = test::make_toy_layers(kLayers, kWidth, 1);
  at::Tensor x = batch.inputs;
  for (const auto& layer : layers) x = layer->forward(x, {.training = true});
  const at::Tensor loss = test::toy_loss(x, batch.targets) / static_cast<double>(batch.samples());
  torch::autograd::backward({loss}, {});
  std::vector<at::Tensor> gradients;
  for (const auto& layer : layers) {
    for (const auto* parameter : layer->parameters()) gradients.push_back(parameter->value.grad());
  }
  return gradients;
}

Partition even_partition(int stages) {
  Partition partition{std::vector<int>(stages, kLayers / stages)};
  for (int i = 0; i < kLayers % stages; ++i) ++partition.layers_per_stage[i];
  return partition;
}

std::shared_ptr<ddp::Reducer> make_reducer(const Executor& executor) {
  std::vector<ddp::StageGradients> stages;
  for (int s = 0; s < executor.stages(); ++s) {
    ddp::StageGradients& gradients = stages.emplace_back(ddp::StageGradients{StageId{s}, {}, {}, {}});
    for (const ParameterSlot& slot : executor.stage(ReplicaId{0}, StageId{s}).parameters().slots()) {
      gradients.extents.push_back({slot.id, slot.begin, slot.begin + slot.numel});
    }
    for (int r = 0; r < executor.replicas(); ++r) {
      gradients.flat.push_back(executor.stage(ReplicaId{r}, StageId{s}).parameters().gradients());
      gradients.devices.push_back({device::DeviceKind::kCpu, r});
    }
  }
  return std::make_shared<ddp::Reducer>(std::move(stages), ddp::ReducerOptions{.bucket_bytes = 400});
}

PassRequest training_pass(const std::string& schedule, int stages, int chunks, int replicas, const MicroBatch& batch) {
  PassRequest request{
      .schedule = make_schedule(schedule, {.stages = stages, .micro_batches = chunks, .virtual_stages = 1}),
      .context = {.training = true},
      .loss = test::toy_loss,
      .gradient_scale = 1.0 / static_cast<double>(batch.samples())};
  for (const MicroBatch& share : split(batch, replicas)) request.micro_batches.push_back(split(share, chunks));
  return request;
}

struct Case {
  std::string schedule;
  int stages;
  int chunks;
  int replicas;
  std::int64_t samples;
};

class ExecutorParity : public ::testing::TestWithParam<Case> {};

TEST_P(ExecutorParity, GivesTheGradientsOfOneDeviceWithoutMicroBatches) {
  const auto [schedule, stages, chunks, replicas, samples] = GetParam();
  ASSERT_NO_THROW(validate(make_schedule(schedule, {.stages = stages, .micro_batches = chunks, .virtual_stages = 1})));
  const MicroBatch batch = test::make_toy_batch(samples, kWidth, 3);
  const auto layers_of = [] { return test::make_toy_layers(kLayers, kWidth, 1); };
  Executor executor(test::make_toy_grid(layers_of, even_partition(stages), replicas), test::cpu_grid(replicas, stages),
                    {});
  const auto sync = make_reducer(executor);

  for (int step = 0; step < 2; ++step) {  // the second step shows that nothing is left over from the first
    PassRequest request = training_pass(schedule, stages, chunks, replicas, batch);
    request.sync = sync;
    sync->begin_step();
    executor.run(std::move(request));
    static_cast<void>(sync->finish_step({}));
  }

  const auto expected = plain_gradients(batch);
  std::size_t next = 0;
  for (int s = 0; s < stages; ++s) {
    const FlatParameters& parameters = executor.stage(ReplicaId{0}, StageId{s}).parameters();
    for (const ParameterSlot& slot : parameters.slots()) {
      const auto& reference = expected[next++];
      const auto error = (FlatParameters::view(parameters.gradients(), slot) - reference).norm().item<double>();
      EXPECT_LE(error, 1e-12 * reference.norm().item<double>()) << slot.name;
    }
  }
  EXPECT_EQ(next, expected.size());
}

std::vector<Case> parity_cases() {
  std::vector<Case> cases;
  for (const std::string schedule : {"gpipe", "1f1b", "eager-1f1b", "looped-bfs"}) {
    for (const int stages : {1, 2, 3, 5}) {
      for (const int chunks : {1, 2, 3, 8}) {
        for (const int replicas : {1, 2, 3}) {
          for (const std::int64_t samples : {1, 7, 24}) cases.push_back({schedule, stages, chunks, replicas, samples});
        }
      }
    }
  }
  return cases;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  const auto& [schedule, stages, chunks, replicas, samples] = info.param;
  std::string name = schedule;
  std::ranges::replace(name, '-', '_');
  return name + "_p" + std::to_string(stages) + "_m" + std::to_string(chunks) + "_r" + std::to_string(replicas) + "_n" +
         std::to_string(samples);
}

INSTANTIATE_TEST_SUITE_P(Grid, ExecutorParity, ::testing::ValuesIn(parity_cases()), name_of_case);

TEST(Executor, EvaluationGivesTheLogitsInOrderAndKeepsNothing) {
  const MicroBatch batch = test::make_toy_batch(10, kWidth, 9);
  Executor executor(test::make_toy_grid([] { return test::make_toy_layers(kLayers, kWidth, 1); }, even_partition(2), 2),
                    test::cpu_grid(2, 2), {});
  PassRequest request{.schedule = make_forward_only({.stages = 2, .micro_batches = 3}), .loss = test::toy_loss};
  for (const MicroBatch& share : split(batch, 2)) request.micro_batches.push_back(split(share, 3));
  const PassResult result = executor.run(std::move(request));

  at::Tensor expected = batch.inputs;
  const auto layers = test::make_toy_layers(kLayers, kWidth, 1);
  const at::NoGradGuard no_grad;
  for (const auto& layer : layers) expected = layer->forward(expected, {});
  std::vector<at::Tensor> logits;
  for (const auto& of_replica : result.micro_batches) {
    for (const auto& of_micro_batch : of_replica) logits.push_back(of_micro_batch.logits);
  }
  EXPECT_TRUE(at::allclose(at::cat(logits), expected, 1e-12, 1e-12));
  EXPECT_EQ(executor.stage(ReplicaId{0}, StageId{0}).in_flight(), 0);
}

TEST(Executor, KeepsNoMoreMicroBatchesAliveThanTheSchedulePromises) {
  constexpr int kChunks = 8;
  for (const auto& [schedule, expected] : {std::pair{"gpipe", kChunks}, std::pair{"1f1b", 2},
                                           std::pair{"eager-1f1b", 3}, std::pair{"looped-bfs", kChunks}}) {
    int peak = 0;
    Executor* running = nullptr;
    const auto layers_of = [&] {
      auto layers = test::make_toy_layers(2, kWidth, 1);
      layers.insert(layers.begin(), std::make_unique<test::ProbeLayer>("probe", [&](const nn::ForwardContext&) {
                      peak = std::max(peak, running->stage(ReplicaId{0}, StageId{0}).in_flight() + 1);
                    }));
      return layers;
    };
    Executor executor(test::make_toy_grid(layers_of, Partition{{2, 1}}, 1), test::cpu_grid(1, 2), {});
    running = &executor;
    executor.run(training_pass(schedule, 2, kChunks, 1, test::make_toy_batch(kChunks, kWidth, 2)));
    EXPECT_EQ(peak, expected) << schedule;
  }
}

TEST(Executor, SaysWhichSchedulesItDoesNotRun) {
  const auto why = [](const char* name) {
    return why_not_run(make_schedule(name, {.stages = 2, .micro_batches = 4})).value_or("runs");
  };
  for (const char* name : {"gpipe", "1f1b", "eager-1f1b"}) EXPECT_EQ(why(name), "runs");
  for (const char* name : {"interleaved", "looped-bfs"}) EXPECT_EQ(why(name), "gives a device several stages");
  for (const char* name : {"zb-h1", "zb-h2", "zb-v", "dualpipe-v"})
    EXPECT_EQ(why(name), "cuts the backward into I and W");
  EXPECT_EQ(why_not_run(make_looped_bfs({.stages = 2, .micro_batches = 4, .virtual_stages = 1})), std::nullopt);
  EXPECT_EQ(why_not_run(with_reductions(make_1f1b({.stages = 2, .micro_batches = 2}))),
            "has overlapped pairs or REDUCE_GRAD");
}

TEST(Executor, RecordsASpanForEveryAction) {
  Executor executor(test::make_toy_grid([] { return test::make_toy_layers(kLayers, kWidth, 1); }, even_partition(2), 1),
                    test::cpu_grid(1, 2), {});
  executor.run(training_pass("1f1b", 2, 4, 1, test::make_toy_batch(8, kWidth, 2)));
  const StepSpans spans = executor.recorder().collect(0, 0, 0);
  ASSERT_EQ(spans.places.size(), 2U);
  for (const StepSpans::Place& place : spans.places) {
    int forwards = 0, backwards = 0;
    for (const Span& span : place.spans) {
      forwards += span.phase == Phase::kForward ? 1 : 0;
      backwards += span.phase == Phase::kBackward ? 1 : 0;
    }
    EXPECT_EQ(forwards, 4);
    EXPECT_EQ(backwards, 4);
  }
}

}  // namespace
}  // namespace sluice::pipeline
