// Plans: {every schedule} x devices x replicas x chunks x model x recompute x {modes of batch-norm, or float64 and
// float32}, each three optimizer steps against one device in float64. CI takes a seeded sample in which every pair of
// choices occurs; the long tests take them all. Then random plans with uneven sizes and injected failures for as long
// as SLUICE_PLANS_SECONDS says (10 s in CI, else 60), each of which must give back all the memory of its tensors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <set>
#include <thread>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/rng.h"
#include "device/memory.h"
#include "engine/plan_models.h"
#include "engine/reference.h"
#include "engine/train_step.h"
#include "pipeline/schedule/generators.h"
#include "support/long_tests.h"
#include "support/toy_model.h"

namespace sluice::engine::test {
namespace {

using nn::BatchNormMode;

// Gradients of biases nearly cancel over the samples: of one device and one micro-batch, rounding to float32 alone
// makes 0.85e-5 of a fc2.bias (11 samples, step 1, AVX-512).
constexpr double kTolerance = 1e-10, kFloat32Tolerance = 2e-5;
constexpr std::uint64_t kSeed = 7;
constexpr int kMostSlots = 12;  // 4 devices of 3 replicas

struct Case {
  std::string schedule;
  int devices = 1;  // of a replica
  int replicas = 1;
  int chunks = 1;
  std::string model;
  bool recompute = false;
  BatchNormMode batch_norm = BatchNormMode::kMicro;
  at::ScalarType dtype = at::kDouble;
  std::int64_t samples = 13;  // in the first step, one less in each of the next
  int failing_layer = -1;     // -1: none; else a pass fails in it before the steps

  [[nodiscard]] bool has_batch_norm() const { return model == "residual"; }
  [[nodiscard]] double tolerance() const { return dtype == at::kDouble ? kTolerance : kFloat32Tolerance; }
  // "deferred" or "float32".
  [[nodiscard]] std::string variant() const {
    constexpr std::array kModes{"micro", "deferred", "sync"};
    if (has_batch_norm()) return kModes.at(static_cast<std::size_t>(batch_norm));
    return dtype == at::kDouble ? "float64" : "float32";
  }
  [[nodiscard]] std::string text() const {
    return concat(schedule, ", ", devices, " devices, ", replicas, " replicas, ", chunks, " chunks, ", model, ", ",
                  variant(), recompute ? ", recompute" : "", ", ", samples, " samples",
                  failing_layer >= 0 ? concat(", fails in layer ", failing_layer) : "");
  }
};

pipeline::MicroBatch batch_of(const Case& c, std::int64_t step) {
  const std::int64_t samples = std::max<std::int64_t>(c.samples - step, 1);
  if (c.model == "gpt2") return make_token_batch(samples, step + 1);
  pipeline::MicroBatch batch = make_batch(samples, step + 1);
  batch.inputs[0] = batch.inputs[0].to(c.dtype);
  return batch;
}

// What one device passes at once: a batch-norm normalises by it.
std::vector<pipeline::MicroBatch> pieces_for_one_device(const Case& c, pipeline::MicroBatch batch) {
  if (c.model != "gpt2") batch.inputs[0] = batch.inputs[0].to(at::kDouble);
  if (!c.has_batch_norm()) return {batch};
  return c.batch_norm == BatchNormMode::kSync ? joined_micro_batches(batch, c.replicas, c.chunks)
                                              : pieces_of(batch, c.replicas, c.chunks);
}

// A probe in front of layer `at` throws while `fails` is set.
Composition compose_case(const Case& c, std::atomic<bool>& fails) {
  Plan plan{.replicas = c.replicas,
            .chunks = c.chunks,
            .schedule = c.schedule,
            .virtual_stages = pipeline::default_virtual_stages(c.schedule)};
  const int stages = c.devices * plan.virtual_stages;
  plan.recompute.assign(stages, c.recompute);
  ComposeOptions options{.model_name = c.model, .bucket_bytes = 3000, .optimizer = {.kind = "momentum"}};
  options.make_layers = [&] {
    auto layers = make_plan_layers(c.model, c.dtype);
    if (c.failing_layer >= 0) {
      layers.insert(layers.begin() + c.failing_layer,
                    std::make_unique<sluice::test::ProbeLayer>("probe", [&fails](const nn::ForwardContext&) {
                      if (fails.exchange(false)) throw DataError("planted failure");
                    }));
    }
    return layers;
  };
  const int layers = static_cast<int>(options.make_layers().size());
  plan.partition.layers_per_stage.assign(stages, layers / stages);
  for (int i = 0; i < layers % stages; ++i) ++plan.partition.layers_per_stage[i];
  for (int i = 0; i < c.devices * c.replicas; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  return compose(plan, options);
}

class Plans : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::count_memory(); }
};

// Of all tensors of the process: [slot, and the host at the end].
std::vector<std::uint64_t> live_bytes() {
  std::vector<std::uint64_t> bytes;
  for (int i = 0; i < kMostSlots; ++i) bytes.push_back(device::memory_use({device::DeviceKind::kCpu, i}).current);
  bytes.push_back(device::host_memory_use().current);
  return bytes;
}

void expect_nothing_is_left(const Composition& grid) {
  for (int r = 0; r < grid.executor->replicas(); ++r) {
    for (int s = 0; s < grid.executor->stages(); ++s) {
      const pipeline::Stage& stage = grid.executor->stage(ReplicaId{r}, StageId{s});
      EXPECT_EQ(stage.in_flight() + stage.deferred(), 0) << "replica " << r << " stage " << s;
    }
  }
}

// Compared apart from other tensors, by which the error of one is measured: a step's gradients, the parameters.
void expect_equal(const storage::TensorMap& ours, const storage::TensorMap& theirs, double tolerance,
                  const std::string& what) {
  const auto [error, name] = worst_error(ours, theirs);
  EXPECT_LE(error, tolerance) << name << " of " << what;
}

// Of every replica, which have the same.
void expect_statistics(const Composition& grid, const storage::TensorMap& expected, double tolerance) {
  for (int r = 0; r < grid.executor->replicas(); ++r) {
    storage::TensorMap statistics, theirs = expected;
    for (int s = 0; s < grid.executor->stages(); ++s) {
      for (const nn::Buffer* buffer : grid.executor->stage(ReplicaId{r}, StageId{s}).parameters().buffers()) {
        if (buffer->value.is_floating_point()) {
          statistics[buffer->name] = buffer->value;
        } else {
          EXPECT_TRUE(at::equal(buffer->value, theirs.at(buffer->name))) << buffer->name << " of replica " << r;
          theirs.erase(buffer->name);
        }
      }
    }
    expect_equal(statistics, theirs, tolerance, concat("the statistics of replica ", r));
  }
}

void fail_in_a_pass(const Case& c, Composition& grid, TrainStep& step, std::atomic<bool>& fails) {
  const BufferSnapshot statistics(grid);  // a failed pass has taken in some of its micro-batches
  fails = true;
  EXPECT_THROW((void)step.compute_gradients(batch_of(c, 0), 0, c.chunks), Error);
  expect_nothing_is_left(grid);
  statistics.restore();
}

storage::TensorMap copies(storage::TensorMap tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.clone();
  return tensors;
}

void expect_steps_of_one_device(const Case& c) {
  SCOPED_TRACE(c.text());
  std::atomic<bool> fails = false;
  Composition grid = compose_case(c, fails);
  ReferenceModel one_device(make_plan_layers(c.model, at::kDouble));
  TrainStep step(grid, {.seed = kSeed, .numerics = {.batch_norm = c.batch_norm}});
  if (c.failing_layer >= 0) fail_in_a_pass(c, grid, step, fails);
  for (std::int64_t number = 0; number < 3; ++number) {
    const pipeline::MicroBatch batch = batch_of(c, number);
    const ReferenceStep expected =
        one_device.step(pieces_for_one_device(c, batch),
                        {.training = true, .numerics = {.batch_norm = c.batch_norm}, .seed = kSeed, .step = number});
    storage::TensorMap statistics;
    if (c.has_batch_norm())
      statistics = residual_statistics(copies(model_tensors(grid)), batch, c.replicas, c.chunks, c.batch_norm);
    const auto ours = step.compute_gradients(batch, number, c.chunks);
    EXPECT_NEAR(ours.stats.loss, expected.loss, c.tolerance() * expected.loss);
    storage::TensorMap gradients;
    for (const auto& [name, gradient] : gradient_tensors(grid)) gradients[name] = gradient / ours.divisor;
    expect_equal(gradients, expected.gradients, c.tolerance(), concat("the gradients of step ", number));
    expect_statistics(grid, statistics, c.tolerance());
    step.update_weights(0.05, ours.divisor);
    one_device.update({.kind = "momentum"}, 0.05);
  }
  expect_equal(parameter_tensors(grid), one_device.parameters(), c.tolerance(), "the parameters");
  expect_nothing_is_left(grid);
}

// The modes of batch-norm, or precisions. A ReLU has no gradient that float32 can tell where its input is nearly 0.
std::vector<Case> variants_of(const Case& c) {
  std::vector<Case> variants(c.has_batch_norm() ? 3 : 2, c);
  if (c.has_batch_norm()) {
    variants[1].batch_norm = BatchNormMode::kDeferred;
    variants[2].batch_norm = BatchNormMode::kSync;
  } else {
    variants[1].dtype = at::kFloat;
  }
  return variants;
}

std::vector<Case> all_plans() {
  std::vector<Case> plans;
  for (const std::string& schedule : pipeline::schedule_names()) {
    for (const int devices : {1, 2, 3, 4}) {
      for (const int replicas : {1, 2}) {
        for (const int chunks : {1, 2, 4, 5}) {
          if (chunks < pipeline::least_micro_batches(schedule, devices)) continue;
          for (const char* model : kPlanModels) {
            for (const bool recompute : {false, true}) {
              for (Case& c : variants_of({schedule, devices, replicas, chunks, model, recompute}))
                plans.push_back(std::move(c));
            }
          }
        }
      }
    }
  }
  // dualpipe-v needs twice as many chunks as devices.
  for (const int devices : {3, 4}) {
    for (const char* model : kPlanModels)
      plans.push_back({"dualpipe-v", devices, 1 + devices % 2, 9, model, devices == 3});
  }
  return plans;
}

// Numbered choices of a plan, so that pairs of them can be counted.
std::vector<std::string> choices_of(const Case& c) {
  return {c.schedule,
          concat("p", c.devices),
          concat("r", c.replicas),
          concat("m", c.chunks),
          c.model,
          c.variant(),
          c.recompute ? "recompute" : "keep"};
}

std::set<std::string> pairs_of(const Case& c) {
  std::set<std::string> pairs;
  const auto choices = choices_of(c);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    for (std::size_t j = i + 1; j < choices.size(); ++j) pairs.insert(concat(choices[i], " ", choices[j]));
  }
  return pairs;
}

// In a random order those that have a pair of choices which none before had.
std::vector<Case> pairwise_sample(std::vector<Case> plans) {
  RngStream rng(hash_name("plans"));
  for (std::size_t i = plans.size(); i > 1; --i) std::swap(plans[i - 1], plans[rng.below(i)]);
  std::set<std::string> seen;
  std::vector<Case> sample;
  for (Case& c : plans) {
    const std::size_t before = seen.size();
    seen.merge(pairs_of(c));
    if (seen.size() > before) sample.push_back(std::move(c));
  }
  return sample;
}

TEST_F(Plans, ThreeStepsEqualThoseOfOneDevice) {
  std::vector<Case> plans = all_plans();
  const std::size_t number = plans.size();
  if (!sluice::test::runs_long_tests()) plans = pairwise_sample(std::move(plans));
  sluice::test::tell_share(plans.size(), number, "plans");
  for (const Case& c : plans) expect_steps_of_one_device(c);
}

Case random_case(RngStream& rng) {
  const auto pick = [&](int low, int high) { return low + static_cast<int>(rng.below(high - low + 1)); };
  Case c;
  c.schedule = pipeline::schedule_names()[rng.below(pipeline::schedule_names().size())];
  c.devices = pick(1, 4);
  c.replicas = pick(1, 3);
  c.chunks = std::max(pick(1, 9), pipeline::least_micro_batches(c.schedule, c.devices));
  c.model = kPlanModels[rng.below(kPlanModels.size())];
  c.recompute = pick(0, 1) == 1;
  c.samples = pick(1, 20);
  if (pick(0, 3) == 0) c.failing_layer = pick(1, kPlanLayers - 1);
  const std::vector<Case> variants = variants_of(c);
  return variants[rng.below(variants.size())];
}

// Throws in its backward, once.
class FailingBackward : public torch::autograd::Function<FailingBackward> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, std::atomic<bool>* fails) {
    ctx->saved_data["fails"] = reinterpret_cast<std::int64_t>(fails);
    return x * 1.0;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    auto* fails = reinterpret_cast<std::atomic<bool>*>(ctx->saved_data["fails"].toInt());
    if (fails->exchange(false)) throw DataError("planted failure");
    return {grads[0], {}};
  }
};

class FailingLayer final : public nn::Layer {
 public:
  explicit FailingLayer(std::atomic<bool>& fails) : Layer("failing"), fails_(fails) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext&) override {
    return FailingBackward::apply(x, &fails_);
  }

 private:
  std::atomic<bool>& fails_;
};

// One replica fails in a backward while the others wait for it in theirs; the next step is a good one.
TEST_F(Plans, AFailureAmongSynchronisedBackwardsStopsThemAll) {
  std::atomic<bool> fails = false;
  const auto layers_of = [&] {
    auto layers = make_plan_layers("residual", at::kDouble);
    layers.insert(layers.begin() + 5, std::make_unique<FailingLayer>(fails));
    return layers;
  };
  ComposeOptions options{.model_name = "residual", .make_layers = layers_of, .optimizer = {.kind = "sgd"}};
  for (int i = 0; i < 6; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  Composition grid = compose({.partition = {{4, 5}}, .replicas = 3, .chunks = 3}, options);
  TrainStep step(grid, {.seed = kSeed, .numerics = {.batch_norm = nn::BatchNormMode::kSync}});
  ReferenceModel one_device(layers_of());
  for (std::int64_t number = 0; number < 3; ++number) {
    fails = true;
    EXPECT_THROW((void)step.compute_gradients(make_batch(13), number, 3), Error);
    expect_nothing_is_left(grid);
    const auto ours = step.compute_gradients(make_batch(13), number, 3);
    const ReferenceStep expected =
        one_device.step(joined_micro_batches(make_batch(13), 3, 3), {.training = true, .seed = kSeed, .step = number});
    storage::TensorMap gradients;
    for (const auto& [name, gradient] : gradient_tensors(grid)) gradients[name] = gradient / ours.divisor;
    const auto [error, name] = worst_error(gradients, expected.gradients);
    EXPECT_LE(error, kTolerance) << name;
  }
}

// What a replica had taken in for the whole mini-batch, when another one failed, is of no mini-batch any more.
TEST_F(Plans, AReplicaThatWasDoneWhenAnotherFailedForgetsItsStatistics) {
  std::atomic<bool> fails = false;
  int replicas = 0;
  const auto layers_of = [&] {
    auto layers = make_plan_layers("residual", at::kDouble);
    const bool is_second = replicas++ == 1;
    layers.push_back(
        std::make_unique<sluice::test::ProbeLayer>("probe", [&fails, is_second](const nn::ForwardContext&) {
          if (!is_second || !fails.exchange(false)) return;
          std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the other one is done then
          throw DataError("planted failure");
        }));
    return layers;
  };
  ComposeOptions options{.model_name = "residual", .make_layers = layers_of, .optimizer = {.kind = "sgd"}};
  for (int i = 0; i < 2; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  Composition grid = compose({.partition = {{kPlanLayers + 1}}, .replicas = 2, .chunks = 2}, options);
  TrainStep step(grid, {.seed = kSeed, .numerics = {.batch_norm = BatchNormMode::kDeferred}});
  const storage::TensorMap expected =
      residual_statistics(copies(model_tensors(grid)), make_batch(12, 2), 2, 2, BatchNormMode::kDeferred);
  fails = true;
  EXPECT_THROW((void)step.compute_gradients(make_batch(12, 1), 0, 2), Error);
  (void)step.compute_gradients(make_batch(12, 2), 0, 2);
  expect_statistics(grid, expected, kTolerance);
}

TEST_F(Plans, RandomOnesWithUnevenSizesAndFailuresEqualOneDevice) {
  const char* wanted = std::getenv("SLUICE_PLANS_SECONDS");
  const double seconds = wanted != nullptr ? std::atof(wanted) : sluice::test::runs_long_tests() ? 60 : 4;
  const char* seed = std::getenv("SLUICE_PLANS_SEED");
  RngStream rng(derive_key(hash_name("random plans"), seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1));
  ASSERT_TRUE(device::memory_is_counted());
  const Nanoseconds begin = now_ns();
  int count = 0;
  for (; to_s(now_ns() - begin) < seconds && !HasFailure(); ++count) {
    const Case c = random_case(rng);
    const auto bytes = live_bytes();
    expect_steps_of_one_device(c);
    EXPECT_EQ(live_bytes(), bytes) << c.text();
  }
  std::cout << count << " random plans\n";
}

}  // namespace
}  // namespace sluice::engine::test
