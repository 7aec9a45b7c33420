#include "pipeline/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "ddp/reducer.h"
#include "nn/conv.h"
#include "pipeline/executor_cases.h"
#include "pipeline/frozen_prefix.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/validate.h"
#include "support/long_tests.h"
#include "support/toy_model.h"

namespace sluice::pipeline {
namespace {

using namespace executor_cases;  // NOLINT(google-build-using-namespace): written for these tests

// Gradients of the mean loss over the whole batch: one device, no micro-batches.
std::vector<at::Tensor> plain_gradients(const MicroBatch& batch) {
  const auto layers = test::make_toy_layers(kLayers, kWidth, 1);
  at::Tensor x = batch.inputs[0];
  for (const auto& layer : layers) x = layer->forward(x, {.training = true});
  const at::Tensor loss = test::toy_loss({x}, batch.targets) / static_cast<double>(batch.samples());
  torch::autograd::backward({loss}, {});
  std::vector<at::Tensor> gradients;
  for (const auto& layer : layers) {
    for (const auto* parameter : layer->parameters()) gradients.push_back(parameter->value.grad());
  }
  return gradients;
}

std::shared_ptr<ddp::Reducer> make_reducer(const Executor& executor) {
  std::vector<comm::SyncedStage> stages;
  for (int s = 0; s < executor.stages(); ++s) {
    comm::SyncedStage& synced = stages.emplace_back(comm::SyncedStage{.stage = StageId{s}});
    for (const ParameterEntry& entry : executor.stage(ReplicaId{0}, StageId{s}).parameters().entries()) {
      synced.extents.push_back({entry.id, entry.begin, entry.begin + entry.numel});
    }
    for (int r = 0; r < executor.replicas(); ++r) {
      synced.gradients.push_back(executor.stage(ReplicaId{r}, StageId{s}).parameters().gradients());
      synced.devices.push_back({device::DeviceKind::kCpu, r});
    }
  }
  return std::make_shared<ddp::Reducer>(std::move(stages), ddp::ReducerOptions{.bucket_bytes = 400});
}

class ExecutorParity : public ::testing::TestWithParam<Case> {
 protected:
  // The gradients of two steps, the second of which shows that nothing is left over from the first.
  static void expect_plain_gradients(int chunks, std::int64_t samples, Stage::Options options) {
    SCOPED_TRACE(::testing::Message() << chunks << " chunks, " << samples << " samples, recompute "
                                      << options.recompute);
    const auto& [name, devices, replicas] = GetParam();
    const Schedule schedule = schedule_of(name, devices, chunks);
    ASSERT_NO_THROW(validate(schedule));
    const MicroBatch batch = test::make_toy_batch(samples, kWidth, 3);
    const auto layers_of = [] { return test::make_toy_layers(kLayers, kWidth, 1); };
    Executor executor(test::make_toy_grid(layers_of, even_partition(schedule.stages), replicas, options),
                      test::cpu_grid(replicas, devices), stage_owners(schedule), {});
    const auto sync = make_reducer(executor);
    for (int step = 0; step < 2; ++step) {
      PassRequest request = training_pass(schedule, replicas, batch);
      request.sync = sync;
      static_cast<void>(sync->begin_step({}));
      executor.run(std::move(request));
      static_cast<void>(sync->finish_step({}));
    }
    const auto expected = plain_gradients(batch);
    std::size_t next = 0;
    for (int s = 0; s < schedule.stages; ++s) {
      const Stage& stage = executor.stage(ReplicaId{0}, StageId{s});
      EXPECT_EQ(stage.in_flight() + stage.deferred(), 0);
      for (const ParameterEntry& entry : stage.parameters().entries()) {
        const auto& reference = expected[next++];
        const at::Tensor ours = FlatParameters::view(stage.parameters().gradients(), entry);
        EXPECT_LE((ours - reference).norm().item<double>(), 1e-12 * reference.norm().item<double>()) << entry.name;
      }
    }
    EXPECT_EQ(next, expected.size());
  }
};

TEST_P(ExecutorParity, GivesTheGradientsOfOneDeviceWithoutMicroBatches) {
  int turn = 0;
  for (const int chunks : {1, 2, 3, 8}) {
    if (chunks < least_micro_batches(GetParam().schedule, GetParam().devices)) continue;
    for (const std::int64_t samples : {1, 7, 24}) {
      ++turn;
      for (const bool recompute : {false, true}) {
        if ((turn % 2 == 1) == recompute && !sluice::test::runs_long_tests()) continue;  // CI: in turns
        expect_plain_gradients(chunks, samples, {.recompute = recompute});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, ExecutorParity, ::testing::ValuesIn(parity_cases()), name_of_case);

// Layers that are not trained at the front cost nothing in backward, over stages too, and change no gradient of others.
TEST(Executor, APrefixWithoutGradientsKeepsNothing) {
  const MicroBatch batch = test::make_toy_batch(8, kWidth, 3);
  const auto expected = plain_gradients(batch);  // two a layer: weight, bias
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) {
    for (const int untrained : {2, 3, 5, 6}) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(::testing::Message() << name << ", " << untrained << " layers, recompute " << recompute);
        const Schedule schedule = schedule_of(name, 3, 4);
        const auto layers_of = [untrained] {
          LayerList layers = test::make_toy_layers(kLayers, kWidth, 1);
          for (int i = 0; i < untrained; ++i) {
            for (auto* parameter : layers[i]->parameters()) parameter->value.requires_grad_(false);
          }
          return layers;
        };
        Executor executor(test::make_toy_grid(layers_of, even_partition(3), 1, {.recompute = recompute}),
                          test::cpu_grid(1, 3), stage_owners(schedule), {});
        std::vector<LiveBytes*> live;
        for (int s = 0; s < 3; ++s) live.push_back(&executor.stage(ReplicaId{0}, StageId{s}).count_live_bytes());
        executor.run(training_pass(schedule, 1, batch));
        std::size_t next = 2 * static_cast<std::size_t>(untrained);
        for (int s = 0; s < 3; ++s) {
          const int own_layers = kLayers / 3;
          EXPECT_EQ(live[s]->peak() > 0, untrained < (s + 1) * own_layers) << "stage " << s;
          const Stage& stage = executor.stage(ReplicaId{0}, StageId{s});
          for (const ParameterEntry& entry : stage.parameters().entries()) {
            if (!entry.is_trained) continue;
            const at::Tensor own = FlatParameters::view(stage.parameters().gradients(), entry);
            const at::Tensor& reference = expected[next++];
            EXPECT_LE((own - reference).norm().item<double>(), 1e-12 * reference.norm().item<double>()) << entry.name;
          }
        }
        EXPECT_EQ(next, expected.size());
      }
    }
  }
}

TEST(Executor, EvaluationGivesTheLogitsInOrderAndKeepsNothing) {
  const MicroBatch batch = test::make_toy_batch(10, kWidth, 9);
  const std::vector<int> owners{0, 1, 1, 0};
  Executor executor(test::make_toy_grid([] { return test::make_toy_layers(kLayers, kWidth, 1); }, even_partition(4), 2),
                    test::cpu_grid(2, 2), owners, {});
  PassRequest request{.schedule = make_forward_only(owners, 3), .loss = test::toy_loss, .keep_logits = true};
  for (const MicroBatch& share : split(batch, 2)) request.micro_batches.push_back(split(share, 3));
  const PassResult result = executor.run(std::move(request));

  at::Tensor expected = batch.inputs[0];
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

// With a large number of classes those of a whole batch are more than everything else.
TEST(Executor, LogitsGoWithTheirMicroBatchUnlessTheyAreKept) {
  constexpr int kChunks = 5;
  const MicroBatch batch = test::make_toy_batch(10, kWidth, 9);
  const std::vector<int> owners = test::one_stage_each(2);
  for (const bool training : {true, false}) {
    for (const bool keep : {true, false}) {
      const Schedule schedule = training ? schedule_of("1f1b", 2, kChunks) : make_forward_only(owners, kChunks);
      Executor executor(
          test::make_toy_grid([] { return test::make_toy_layers(kLayers, kWidth, 1); }, even_partition(2), 1),
          test::cpu_grid(1, 2), owners, {});
      std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
      const auto number_alive = [&] { return std::ranges::count_if(seen, [](const auto& s) { return !s.expired(); }); };
      std::ptrdiff_t most_before = 0;
      PassRequest request = training_pass(schedule, 1, batch);
      request.context.training = training;
      request.keep_logits = keep;
      request.score = [&](const nn::Tensors& outputs, const nn::Tensors& targets) {
        most_before = std::max(most_before, number_alive());
        seen.emplace_back(outputs[0].storage().getWeakStorageImpl());
        return targets[0].sum();
      };
      const PassResult result = executor.run(std::move(request));
      EXPECT_EQ(most_before, keep ? kChunks - 1 : 0) << "training " << training;
      EXPECT_EQ(number_alive(), keep ? kChunks : 0) << "training " << training;
      at::Tensor score = at::zeros({}, at::kLong);
      for (const MicroBatchResult& of_micro_batch : result.micro_batches[0]) score += of_micro_batch.score;
      EXPECT_TRUE(at::equal(score, batch.targets[0].sum()));
    }
  }
}

class ConvLayer final : public nn::RegisteredLayer {
 public:
  explicit ConvLayer(const std::string& name)
      : RegisteredLayer(name, {}),
        conv_(registry_, name, {.in = 16, .out = 16, .kernel = 3, .padding = 1}, nn::Conv2d::Bias::kNone) {}
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext& context) override {
    return at::tanh(conv_(input, context));
  }

 private:
  nn::Conv2d conv_;
};

// Losses and gradients of four micro-batches through two convolutions.
std::vector<at::Tensor> run_convolutions(Executor& executor, const Schedule& schedule, bool training) {
  at::manual_seed(4);
  const MicroBatch batch{{at::randn({16, 16, 8, 8})}, {at::zeros({16}, at::kLong)}, at::arange(16)};
  PassRequest request = training_pass(schedule, 1, batch);
  request.context.training = training;
  request.loss = [](const nn::Tensors& outputs, const nn::Tensors&) { return outputs[0].square().sum(); };
  const PassResult result = executor.run(std::move(request));
  std::vector<at::Tensor> answers;
  for (const MicroBatchResult& of_micro_batch : result.micro_batches[0]) answers.push_back(of_micro_batch.loss);
  for (int s = 0; training && s < schedule.stages; ++s)
    answers.push_back(executor.stage(ReplicaId{0}, StageId{s}).parameters().gradients().clone());
  return answers;
}

TEST(FrozenPrefix, RoundsAsItIsTold) {
  LayerList layers;
  layers.push_back(std::make_unique<ConvLayer>("a"));
  const FrozenPrefix prefix(std::move(layers), at::kCPU, {.winograd = nn::Winograd::k4x4});
  const at::Tensor x = at::randn({16, 16, 8, 8}), y = prefix.forward({x}, nullptr).tensors[0];
  EXPECT_TRUE(at::equal(y, prefix.layers()[0]->forward(x, {.numerics = {.winograd = nn::Winograd::k4x4}})));
  EXPECT_FALSE(at::equal(y, prefix.layers()[0]->forward(x, {.numerics = {.winograd = nn::Winograd::k2x2}})));
}

// Symptom: the first micro-batches of a step are those of the step before. Cause: transformed weights (Winograd) are
// kept for the micro-batches of a pass, and were not dropped at its end.
TEST(Executor, WeightsThatChangeBetweenPassesAreTransformedAnew) {
  const std::vector<int> owners = test::one_stage_each(2);
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "evaluation"}) {
    const bool training = std::string(name) != "evaluation";
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(::testing::Message() << name << ", recompute " << recompute);
      const Schedule schedule = training ? schedule_of(name, 2, 4) : make_forward_only(owners, 4);
      const auto make_executor = [&] {
        const auto layers_of = [] {
          LayerList layers;
          for (const char* layer : {"a", "b"}) layers.push_back(std::make_unique<ConvLayer>(layer));
          return layers;
        };
        return Executor(test::make_toy_grid(layers_of, Partition{{1, 1}}, 1, {.recompute = recompute}),
                        test::cpu_grid(1, 2), owners, {});
      };
      const auto change = [](const Executor& executor) {
        for (int s = 0; s < 2; ++s) executor.stage(ReplicaId{0}, StageId{s}).parameters().values().mul_(-0.5);
      };
      Executor changed_between = make_executor(), changed_before = make_executor();
      const auto before = run_convolutions(changed_between, schedule, training);
      change(changed_between);
      change(changed_before);
      const auto after = run_convolutions(changed_between, schedule, training);
      const auto expected = run_convolutions(changed_before, schedule, training);
      ASSERT_EQ(after.size(), expected.size());
      for (std::size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(after[i], expected[i])) << i;
      EXPECT_FALSE(at::equal(after[0], before[0]));
    }
  }
}

TEST(Executor, KeepsAsManyMicroBatchesAliveAsTheScheduleSays) {
  constexpr int kChunks = 8, kDevices = 2;
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = schedule_of(name, kDevices, kChunks);
    std::vector<std::atomic<int>> peaks(kDevices);
    std::vector<std::vector<StageId>> stages_of(kDevices);
    const std::vector<int> owners = stage_owners(schedule);
    for (int s = 0; s < schedule.stages; ++s) stages_of[owners[s]].push_back(StageId{s});
    Executor* running = nullptr;
    int next = 0;
    const auto probe_of_stage = [&](int stage) {
      return std::make_unique<test::ProbeLayer>("probe", [&, device = owners[stage]](const nn::ForwardContext&) {
        int live = 1;  // the micro-batch of this forward
        for (const StageId own : stages_of[device]) {
          const Stage& s = running->stage(ReplicaId{0}, own);
          live += s.in_flight() + s.deferred();
        }
        peaks[device] = std::max(peaks[device].load(), live);
      });
    };
    const auto layers_of = [&] {
      LayerList layers;
      for (auto& layer : test::make_toy_layers(schedule.stages, kWidth, 1)) {
        layers.push_back(probe_of_stage(next++));
        layers.push_back(std::move(layer));
      }
      return layers;
    };
    Executor executor(test::make_toy_grid(layers_of, Partition{std::vector<int>(schedule.stages, 2)}, 1),
                      test::cpu_grid(1, kDevices), owners, {});
    running = &executor;
    executor.run(training_pass(schedule, 1, test::make_toy_batch(kChunks, kWidth, 2)));
    EXPECT_EQ(std::vector<int>(peaks.begin(), peaks.end()), peak_in_flight(schedule)) << name;
  }
}

// The sample ids that each forward of two stages on one device is given, in training: [stage][micro-batch], forward and
// again where it recomputes.
std::vector<std::vector<at::Tensor>> ids_in_forward(device::Device device, const MicroBatch& batch) {
  constexpr int kStages = 2, kChunks = 3;
  std::vector<std::vector<at::Tensor>> seen(kStages);
  StageGrid grid(1);
  for (int s = 0; s < kStages; ++s) {
    LayerList layers = test::make_toy_layers(1, kWidth, 1);
    layers.push_back(std::make_unique<test::ProbeLayer>(
        "probe", [&seen, s](const nn::ForwardContext& context) { seen[s].push_back(context.sample_ids); }));
    grid[0].push_back(std::make_unique<Stage>(StageId{s}, std::move(layers), ParamId{2 * s}, device, nullptr,
                                              Stage::Options{.recompute = true}));
  }
  const Schedule schedule =
      with_reductions(make_schedule("interleaved", {.stages = 1, .micro_batches = kChunks, .virtual_stages = kStages}));
  Executor executor(std::move(grid), {{device}}, stage_owners(schedule), {});
  executor.run(training_pass(schedule, 1, batch));
  return seen;
}

// What lies in the stages' memory is not copied.
TEST(Executor, StagesAreGivenTheSampleIdsOfTheBatch) {
  const MicroBatch batch = test::make_toy_batch(7, kWidth, 2);
  for (const auto& of_stage : ids_in_forward({}, batch)) {
    ASSERT_EQ(of_stage.size(), 6U);
    for (const at::Tensor& ids : of_stage) EXPECT_TRUE(ids.is_alias_of(batch.sample_ids));
  }
}

TEST(Executor, SampleIdsComeToAGpuOnceAMicroBatch) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  const MicroBatch batch = test::make_toy_batch(7, kWidth, 2);
  const auto seen = ids_in_forward({device::DeviceKind::kCuda, 0}, batch);
  std::vector<const void*> addresses;
  for (const auto& of_stage : seen) {
    ASSERT_EQ(of_stage.size(), 6U);
    std::vector<at::Tensor> of_forwards;
    for (const at::Tensor& ids : of_stage) {
      EXPECT_TRUE(ids.is_cuda());
      addresses.push_back(ids.const_data_ptr());
      of_forwards.push_back(ids.cpu());
    }
    const at::Tensor values = std::get<0>(at::cat(of_forwards).sort());
    EXPECT_TRUE(at::equal(values, batch.sample_ids.repeat_interleave(2)));
  }
  std::ranges::sort(addresses);
  const auto repeated = std::ranges::unique(addresses);
  EXPECT_EQ(addresses.size() - repeated.size(), 3U) << "one copy for each micro-batch";
}

TEST(Executor, RecordsASpanForEveryAction) {
  const Schedule schedule = schedule_of("zb-v", 2, 4);
  Executor executor(test::make_toy_grid([] { return test::make_toy_layers(kLayers, kWidth, 1); }, even_partition(4), 1),
                    test::cpu_grid(1, 2), stage_owners(schedule), {});
  executor.run(training_pass(schedule, 1, test::make_toy_batch(8, kWidth, 2)));
  const StepSpans spans = executor.recorder().collect(0, 0, 0);
  ASSERT_EQ(spans.slots.size(), 2U);
  for (const StepSpans::Slot& slot : spans.slots) {
    for (const StageId stage : slot.stages) {
      const auto count = [&](Phase phase) {
        return std::ranges::count_if(slot.spans, [&](const Span& s) { return s.phase == phase && s.stage == stage; });
      };
      EXPECT_EQ(count(Phase::kForward), 4);
      EXPECT_EQ(count(Phase::kBackward), 4);
      EXPECT_EQ(count(Phase::kWeightGradient), 4);
    }
  }
}

}  // namespace
}  // namespace sluice::pipeline
