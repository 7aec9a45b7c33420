// Plans: {every schedule} x devices x replicas x chunks x model x recompute, each three optimizer steps against one
// device in float64. The ci run takes a seeded sample in which every pair of choices occurs; SLUICE_PLANS=all takes
// them all. Then random plans with uneven sizes and injected failures for as long as SLUICE_PLANS_SECONDS says.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <set>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/rng.h"
#include "nn/batch_norm.h"
#include "nn/conv.h"
#include "nn/linear.h"
#include "pipeline/schedule/generators.h"
#include "support/toy_model.h"
#include "train/reference.h"
#include "train/train_step.h"

namespace sluice::train::test {
namespace {

constexpr double kTolerance = 1e-10;
constexpr std::uint64_t kSeed = 7;
constexpr int kLayers = 8;  // as many stages as the deepest plan has: 4 devices of 2
const nn::LayerOptions kFloat64{.seed = 3, .dtype = at::kDouble};

// tanh(W x + b) of the flattened input.
class DenseLayer final : public nn::RegisteredLayer {
 public:
  DenseLayer(const std::string& name, std::int64_t in, std::int64_t out)
      : RegisteredLayer(name, kFloat64), linear_(registry_, name, in, out, nn::LinearInit::torch_default(in)) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return at::tanh(linear_(x.flatten(1), context));
  }

 private:
  nn::Linear linear_;
};

// x + relu(bn(conv(x))), without x where the channels change; a batch-norm and a skip in each.
class ResidualLayer final : public nn::RegisteredLayer {
 public:
  ResidualLayer(const std::string& name, std::int64_t in, std::int64_t out)
      : RegisteredLayer(name, kFloat64),
        skips_(in == out),
        conv_(registry_, name + ".conv", {.in = in, .out = out, .kernel = 3, .padding = 1}, nn::Conv2d::Bias::kNone),
        norm_(registry_, name + ".bn", out) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor y = norm_(conv_(x, context), context, nn::Activation::kRelu);
    return skips_ ? x + y : y;
  }
  std::vector<nn::BatchNorm2d*> batch_norms() override { return {&norm_}; }

 private:
  bool skips_;
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
};

class MeanLayer final : public nn::RegisteredLayer {
 public:
  MeanLayer(const std::string& name, std::int64_t in, std::int64_t out)
      : RegisteredLayer(name, kFloat64), linear_(registry_, name, in, out, nn::LinearInit::torch_default(in)) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return linear_(x.mean(at::IntArrayRef{2, 3}), context);
  }

 private:
  nn::Linear linear_;
};

const std::array kModels{"mlp", "residual", "vit", "gpt2"};

pipeline::LayerList make_layers(const std::string& model) {
  constexpr std::int64_t kWidth = 6, kClasses = 5, kPixels = 3 * 8 * 8;
  pipeline::LayerList layers;
  if (model == "mlp") {
    for (int i = 0; i < kLayers; ++i) {
      layers.push_back(std::make_unique<DenseLayer>(concat("fc", i), i == 0 ? kPixels : kWidth,
                                                    i + 1 == kLayers ? kClasses : kWidth));
    }
    return layers;
  }
  if (model == "residual") {
    for (int i = 0; i + 1 < kLayers; ++i)
      layers.push_back(std::make_unique<ResidualLayer>(concat("block", i), i == 0 ? 3 : kWidth, kWidth));
    layers.push_back(std::make_unique<MeanLayer>("fc", kWidth, kClasses));
    return layers;
  }
  models::ModelOptions options = small_model(model, /*dropout=*/0.1);
  if (model == "gpt2") options.size = "tiny";  // nano has 6 layers
  return models::make_model(options).layers;
}

struct Case {
  std::string schedule;
  int devices = 1;  // of a replica
  int replicas = 1;
  int chunks = 1;
  std::string model;
  bool recompute = false;
  std::int64_t samples = 13;  // in the first step, one less in each of the next
  bool synchronises = false;  // batch-norm
  int failing_layer = -1;     // -1: none; else a pass fails in it before the steps

  [[nodiscard]] std::string text() const {
    return concat(schedule, ", ", devices, " devices, ", replicas, " replicas, ", chunks, " chunks, ", model,
                  recompute ? ", recompute" : "", ", ", samples, " samples", synchronises ? ", synchronised" : "",
                  failing_layer >= 0 ? concat(", fails in layer ", failing_layer) : "");
  }
};

pipeline::MicroBatch batch_of(const Case& c, std::int64_t step) {
  const std::int64_t samples = std::max<std::int64_t>(c.samples - step, 1);
  return c.model == "gpt2" ? make_token_batch(samples, step + 1) : make_batch(samples, step + 1);
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
    auto layers = make_layers(c.model);
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

void expect_nothing_is_left(const Composition& grid) {
  for (int r = 0; r < grid.executor->replicas(); ++r) {
    for (int s = 0; s < grid.executor->stages(); ++s) {
      const pipeline::Stage& stage = grid.executor->stage(ReplicaId{r}, StageId{s});
      EXPECT_EQ(stage.in_flight() + stage.put_off(), 0) << "replica " << r << " stage " << s;
    }
  }
}

void expect_steps_of_one_device(const Case& c) {
  SCOPED_TRACE(c.text());
  std::atomic<bool> fails = false;
  Composition grid = compose_case(c, fails);
  ReferenceModel one_device(make_layers(c.model));
  const nn::BatchNormMode mode = c.synchronises ? nn::BatchNormMode::kSync : nn::BatchNormMode::kMicro;
  TrainStep step(grid, {.seed = kSeed, .batch_norm = mode});
  if (c.failing_layer >= 0) {
    fails = true;
    EXPECT_THROW((void)step.compute_gradients(batch_of(c, 0), 0, c.chunks), Error);
    expect_nothing_is_left(grid);
  }
  for (std::int64_t number = 0; number < 3; ++number) {
    const pipeline::MicroBatch batch = batch_of(c, number);
    std::vector<pipeline::MicroBatch> pieces{batch};
    if (c.model == "residual") {  // normalises by what is passed at once
      pieces =
          c.synchronises ? joined_micro_batches(batch, c.replicas, c.chunks) : pieces_of(batch, c.replicas, c.chunks);
    }
    const ReferenceStep expected =
        one_device.step(pieces, {.training = true, .batch_norm = mode, .seed = kSeed, .step = number});
    const auto ours = step.compute_gradients(batch, number, c.chunks);
    EXPECT_NEAR(ours.stats.loss, expected.loss, kTolerance * expected.loss);
    TensorMap gradients;
    for (const auto& [name, gradient] : gradient_tensors(grid)) gradients[name] = gradient / ours.divisor;
    const auto [error, name] = worst_error(gradients, expected.gradients);
    EXPECT_LE(error, kTolerance) << name << " in step " << number;
    step.update_weights(0.05, ours.divisor);
    one_device.update({.kind = "momentum"}, 0.05);
  }
  const auto [error, name] = worst_error(parameter_tensors(grid), one_device.parameters());
  EXPECT_LE(error, kTolerance) << name;
  expect_nothing_is_left(grid);
}

std::vector<Case> all_plans() {
  std::vector<Case> plans;
  for (const std::string& schedule : pipeline::schedule_names()) {
    for (const int devices : {1, 2, 3, 4}) {
      for (const int replicas : {1, 2}) {
        for (const int chunks : {1, 2, 4, 5}) {
          if (chunks < pipeline::least_micro_batches(schedule, devices)) continue;
          for (const char* model : kModels) {
            for (const bool recompute : {false, true})
              plans.push_back({schedule, devices, replicas, chunks, model, recompute});
          }
        }
      }
    }
  }
  // dualpipe-v needs twice as many chunks as devices.
  for (const int devices : {3, 4}) {
    for (const char* model : kModels) plans.push_back({"dualpipe-v", devices, 1 + devices % 2, 9, model, devices == 3});
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

// In a random order those that have a pair of choices which none before had, then others up to `count`.
std::vector<Case> pairwise_sample(std::vector<Case> plans, std::size_t count) {
  RngStream rng(hash_name("plans"));
  for (std::size_t i = plans.size(); i > 1; --i) std::swap(plans[i - 1], plans[rng.below(i)]);
  std::set<std::string> seen;
  std::vector<Case> sample, rest;
  for (Case& c : plans) {
    const std::size_t before = seen.size();
    seen.merge(pairs_of(c));
    (seen.size() > before ? sample : rest).push_back(std::move(c));
  }
  for (std::size_t i = 0; i < rest.size() && sample.size() < count; ++i) sample.push_back(rest[i]);
  return sample;
}

TEST(Plans, ThreeStepsEqualThoseOfOneDevice) {
  const char* wanted = std::getenv("SLUICE_PLANS");
  const bool all = wanted != nullptr && std::strcmp(wanted, "all") == 0;
  std::vector<Case> plans = all_plans();
  const std::size_t number = plans.size();
  if (!all) plans = pairwise_sample(std::move(plans), 150);
  for (const Case& c : plans) expect_steps_of_one_device(c);
  std::cout << plans.size() << " of " << number << " plans\n";
}

Case random_case(RngStream& rng) {
  const auto pick = [&](int low, int high) { return low + static_cast<int>(rng.below(high - low + 1)); };
  Case c;
  c.schedule = pipeline::schedule_names()[rng.below(pipeline::schedule_names().size())];
  c.devices = pick(1, 4);
  c.replicas = pick(1, 3);
  c.chunks = std::max(pick(1, 9), pipeline::least_micro_batches(c.schedule, c.devices));
  c.model = kModels[rng.below(kModels.size())];
  c.recompute = pick(0, 1) == 1;
  c.samples = pick(1, 20);
  c.synchronises = c.model == "residual" && pick(0, 1) == 1;
  if (pick(0, 3) == 0) c.failing_layer = pick(1, kLayers - 1);
  return c;
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
TEST(Plans, AFailureAmongSynchronisedBackwardsStopsThemAll) {
  std::atomic<bool> fails = false;
  const auto layers_of = [&] {
    auto layers = make_layers("residual");
    layers.insert(layers.begin() + 5, std::make_unique<FailingLayer>(fails));
    return layers;
  };
  ComposeOptions options{.model_name = "residual", .make_layers = layers_of, .optimizer = {.kind = "sgd"}};
  for (int i = 0; i < 6; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  Composition grid = compose({.partition = {{4, 5}}, .replicas = 3, .chunks = 3}, options);
  TrainStep step(grid, {.seed = kSeed, .batch_norm = nn::BatchNormMode::kSync});
  ReferenceModel one_device(layers_of());
  for (std::int64_t number = 0; number < 3; ++number) {
    fails = true;
    EXPECT_THROW((void)step.compute_gradients(make_batch(13), number, 3), Error);
    expect_nothing_is_left(grid);
    const auto ours = step.compute_gradients(make_batch(13), number, 3);
    const ReferenceStep expected =
        one_device.step(joined_micro_batches(make_batch(13), 3, 3), {.training = true, .seed = kSeed, .step = number});
    TensorMap gradients;
    for (const auto& [name, gradient] : gradient_tensors(grid)) gradients[name] = gradient / ours.divisor;
    const auto [error, name] = worst_error(gradients, expected.gradients);
    EXPECT_LE(error, kTolerance) << name;
  }
}

TEST(Plans, RandomOnesWithUnevenSizesAndFailuresEqualOneDevice) {
  const char* wanted = std::getenv("SLUICE_PLANS_SECONDS");
  const double seconds = wanted != nullptr ? std::atof(wanted) : 60;
  const char* seed = std::getenv("SLUICE_PLANS_SEED");
  RngStream rng(derive_key(hash_name("random plans"), seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1));
  const Nanoseconds begin = now_ns();
  int count = 0;
  for (; to_s(now_ns() - begin) < seconds && !HasFailure(); ++count) expect_steps_of_one_device(random_case(rng));
  std::cout << count << " random plans\n";
}

}  // namespace
}  // namespace sluice::train::test
