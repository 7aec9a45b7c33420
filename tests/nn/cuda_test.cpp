// Our GPU kernels compared with the CPU: dropout masks bit for bit, the rest with bounds. Skips without a GPU; the
// arithmetic alone: gpu_math_test.cpp.
#include <gtest/gtest.h>

#include <limits>

#include "device/device.h"
#include "nn/attention.h"
#include "nn/compare.h"
#include "nn/cross_entropy.h"
#include "nn/cuda/operations.h"
#include "nn/dropout.h"
#include "nn/gelu.h"
#include "nn/layer_norm.h"
#include "task/task.h"

namespace sluice::nn {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr std::array<std::int64_t, 4> kColumns{1, 3, 1000, 4097};
constexpr auto kBoth = {at::kFloat, at::kBFloat16};

// Bound of a norm: rounding once in bfloat16 (2^-9) or in each operation in float32.
double bound_of(at::ScalarType type) { return type == at::kBFloat16 ? 4e-3 : 3e-6; }

class NnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
    ASSERT_TRUE(gpu::has_kernels()) << "built without nvcc";
    at::manual_seed(12);
  }

  static ForwardContext context_of(std::int64_t samples) {
    return {.training = true, .seed = 21, .step = 6, .sample_ids = at::arange(samples, at::kLong) * 7 + 100'000};
  }

  // Numbers that bfloat16 represents, so that both sides get equal inputs.
  static at::Tensor random(at::IntArrayRef sizes, double mean = 0) {
    return (at::randn(sizes) + mean).to(at::kBFloat16).to(at::kFloat);
  }
};

TEST_F(NnCuda, MasksAreThoseOfTheCpuBitForBit) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const std::int64_t columns : kColumns) {
      for (const double p : {0.1, 0.5}) {
        const at::Tensor x = random({5, columns}).to(type);
        const ForwardContext context = context_of(5);
        const auto run = [&](const Tensors& t) { return dropout(t[0], p, "layer", context); };
        const Outcome there = run_with_gradients(run, {x.to(kGpu)}), here = run_with_gradients(run, {x});
        EXPECT_TRUE(at::equal(there.y.cpu(), here.y)) << type << ", " << columns;
        EXPECT_TRUE(at::equal(there.gradients[0].cpu(), here.gradients[0])) << type << ", " << columns;
        const at::Tensor mask = dropout_mask(x.to(kGpu), p, "layer", context);
        EXPECT_TRUE(at::equal(mask.cpu(), dropout_mask(x, p, "layer", context))) << type << ", " << columns;
      }
    }
  }
}

// As in recorded work: kernels read the step number when they run.
TEST_F(NnCuda, MasksFollowAStepInMemory) {
  const at::Tensor x = random({5, 1000}), step = at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(kGpu));
  ForwardContext there = context_of(5), here = context_of(5);
  there.step_in_memory = step;
  for (here.step = 0; here.step < 3; ++here.step) {
    step.fill_(here.step);
    const auto with = [](const ForwardContext& context) {
      return [&context](const Tensors& t) { return dropout(t[0], 0.3, "layer", context); };
    };
    const Outcome ours = run_with_gradients(with(there), {x.to(kGpu)}), theirs = run_with_gradients(with(here), {x});
    EXPECT_TRUE(at::equal(ours.y.cpu(), theirs.y)) << here.step;
    EXPECT_TRUE(at::equal(ours.gradients[0].cpu(), theirs.gradients[0])) << here.step;
    const at::Tensor mask = dropout_mask(x.to(kGpu), 0.3, "layer", there);
    EXPECT_TRUE(at::equal(mask.cpu(), dropout_mask(x, 0.3, "layer", here))) << here.step;
  }
}

TEST_F(NnCuda, MasksDoNotDependOnHowSamplesLieInMemory) {
  const at::Tensor turned = random({30, 6}).t();  // not contiguous
  ForwardContext context = context_of(6);
  const at::Tensor expected = dropout(turned, 0.4, "layer", context);
  EXPECT_TRUE(at::equal(dropout(turned.to(kGpu), 0.4, "layer", context).cpu(), expected));
  const at::Tensor odd = random({6 * 30 + 1}).to(kGpu).narrow(0, 1, 180).view({6, 30});  // begins within a run
  odd.copy_(turned);
  context.sample_ids = context.sample_ids.to(kGpu);
  EXPECT_TRUE(at::equal(dropout(odd, 0.4, "layer", context).cpu(), expected));
  const at::Tensor many = at::ones({70'001, 2});
  EXPECT_TRUE(at::equal(dropout(many.to(kGpu), 0.4, "layer", context_of(70'001)).cpu(),
                        dropout(many, 0.4, "layer", context_of(70'001))));
  EXPECT_EQ(dropout(at::ones({0, 2}, kGpu), 0.4, "layer", context_of(0)).numel(), 0);
}

TEST_F(NnCuda, AttentionDropsByTheSameMasks) {
  const at::Tensor packed = random({4, 37, 3 * 32}).to(at::kDouble);
  const AttentionOptions options{.heads = 2, .dropout = 0.3, .site = "attention", .causal = true};
  const auto run = [&](const Tensors& t) { return self_attention(t[0], options, context_of(4)); };
  const Outcome here = run_with_gradients(run, {packed});
  expect_equal_outcomes(run_with_gradients(run, {packed.to(kGpu)}), here, 1e-12);
  expect_equal_outcomes(run_with_gradients(run, {packed.to(kGpu, at::kFloat)}), here, 1e-5);
}

struct GeluCase {
  gpu::GeluForm form;
  const char* name;
};
constexpr std::array kGeluForms{GeluCase{gpu::GeluForm::kExact, "none"}, GeluCase{gpu::GeluForm::kTanh, "tanh"}};

TEST_F(NnCuda, BiasAndGeluAreThoseOfFloat64) {
  for (const auto& form : kGeluForms) {
    for (const auto type : kBoth) {
      for (const std::int64_t columns : {1, 3, 1000, 4097, 4096}) {
        for (const std::int64_t rows : {1, 3, 200}) {
          SCOPED_TRACE(testing::Message() << form.name << " " << type << " [" << rows << ", " << columns << "]");
          const at::Tensor x = random({rows, columns}) * 2, grad = random({rows, columns}), bias = at::randn({columns});
          const at::Tensor before = x.to(at::kDouble) + bias.to(at::kDouble);
          const at::Tensor exact_x = at::gelu_backward(grad.to(at::kDouble), before, form.name);
          const at::Tensor on_gpu = x.to(kGpu, type), bias_there = bias.to(kGpu);
          expect_close(gpu::bias_gelu(on_gpu, bias_there, form.form), at::gelu(before, form.name), bound_of(type), "y");
          const auto gradients = gpu::bias_gelu_backward(grad.to(kGpu, type), on_gpu, bias_there, form.form, true);
          expect_close(gradients.x, exact_x, bound_of(type), "gradient of x");
          expect_close(gradients.bias, exact_x.sum(0), 3e-6, "gradient of the bias, which is not rounded");
        }
      }
    }
  }
}

struct Harness : RegisteredLayer {
  Harness(std::int64_t in, std::int64_t out)
      : RegisteredLayer("l", {.seed = 3}), linear(registry_, "l", in, out, LinearInit::torch_default(in)) {}
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override {
    return linear_gelu(x, linear, context, GeluForm::kTanh);
  }
  Linear linear;
};

TEST_F(NnCuda, ALinearMapWithItsGeluTrainsAsOnTheCpu) {
  Harness here(40, 24), there(40, 24);
  for (Parameter* parameter : there.parameters())
    parameter->value = parameter->value.detach().to(kGpu).requires_grad_();
  const at::Tensor x = at::randn({3, 7, 40}).transpose(0, 1);  // not contiguous
  here.forward(x, {.training = true}).square().sum().backward();
  there.forward(x.to(kGpu), {.training = true}).square().sum().backward();
  for (std::size_t i = 0; i < here.parameters().size(); ++i) {
    const Parameter &ours = *there.parameters()[i], &exact = *here.parameters()[i];
    EXPECT_LE(relative_error(ours.value.grad(), exact.value.grad()), 1e-5) << exact.name;
  }
}

TEST_F(NnCuda, LayerNormIsThatOfFloat64) {
  struct Types {
    at::ScalarType x, y;
  };
  for (const auto& [of_x, of_y] : {Types{at::kFloat, at::kFloat}, Types{at::kFloat, at::kBFloat16},
                                   Types{at::kBFloat16, at::kBFloat16}, Types{at::kBFloat16, at::kFloat}}) {
    for (const std::int64_t columns : {1, 3, 1000, 1024, 1028, 4097}) {
      for (const std::int64_t rows : {1, 5, 700}) {
        SCOPED_TRACE(testing::Message() << of_x << " to " << of_y << " [" << rows << ", " << columns << "]");
        const Tensors inputs{random({rows, columns}, 1), at::randn({columns}), at::randn({columns})};
        const double slack = columns < 32 ? 10 : 2;  // few numbers are near each other now and then
        const auto ours = [&, y = of_y](const Tensors& t) { return layer_norm(t[0], t[1], t[2], 1e-5, y); };
        const auto plain = [&](const Tensors& t) { return at::layer_norm(t[0], {columns}, t[1], t[2], 1e-5); };
        Tensors exact;
        for (const at::Tensor& input : inputs) exact.push_back(input.to(at::kDouble));
        const Outcome a = run_with_gradients(ours, {inputs[0].to(kGpu, of_x), inputs[1].to(kGpu), inputs[2].to(kGpu)});
        const Outcome b = run_with_gradients(plain, exact);
        expect_close(a.y, b.y, slack * bound_of(of_y), "y");
        expect_close(a.gradients[0], b.gradients[0], slack * std::max(bound_of(of_x), bound_of(of_y)), "gradient of x");
        expect_close(a.gradients[1], b.gradients[1], slack * bound_of(of_y), "gradient of the weight");
        expect_close(a.gradients[2], b.gradients[2], slack * bound_of(of_y), "gradient of the bias");
      }
    }
  }
}

TEST_F(NnCuda, CrossEntropyAndHitsAreThoseOfTheCpu) {
  for (const auto type : kBoth) {
    for (const std::int64_t classes : {1, 10, 1000, 50'257}) {
      for (const double smoothing : {0.0, 0.1}) {
        SCOPED_TRACE(testing::Message() << type << ", " << classes << " classes, smoothing " << smoothing);
        const at::Tensor logits = random({70, classes}).to(type);
        at::Tensor targets = at::arange(70, at::kLong).mul(977).remainder(classes);
        targets[3] = kNoTarget;
        const auto run = [&](const at::Tensor& labels) {
          return [&, labels](const Tensors& t) { return cross_entropy_sum(t[0], labels, smoothing); };
        };
        const Outcome there = run_with_gradients(run(targets.to(kGpu)), {logits.to(kGpu)});
        const Outcome here = run_with_gradients(run(targets), {logits.to(at::kDouble)});
        expect_close(there.y, here.y, 3e-6, "loss");
        expect_close(there.gradients[0], here.gradients[0], bound_of(type), "gradient");
        const at::Tensor hits = gpu::count_hits(logits.to(kGpu), targets.to(kGpu)).cpu();
        const auto task = task::make_classification();
        EXPECT_TRUE(at::equal(hits, task->count({logits}, {targets})));
      }
    }
  }
}

TEST_F(NnCuda, LayerNormTakesWhatLiesOtherwise) {
  const at::Tensor x = at::randn({4, 20, 6}), weight = at::randn({20}), bias = at::randn({20});
  const at::Tensor turned = x.transpose(1, 2);
  const at::Tensor exact = at::layer_norm(turned.to(at::kDouble), {20}, weight.to(at::kDouble), bias.to(at::kDouble));
  const at::Tensor ours = layer_norm(x.to(kGpu).transpose(1, 2), weight.to(kGpu), bias.to(kGpu), 1e-5, at::kFloat);
  expect_close(ours, exact, 1e-5, "turned");
  const at::Tensor flat = at::zeros({41}, kGpu);  // parameters anywhere in a buffer
  const at::Tensor weight_there = flat.narrow(0, 1, 20), bias_there = flat.narrow(0, 21, 20);
  weight_there.copy_(weight);
  bias_there.copy_(bias);
  EXPECT_TRUE(at::equal(layer_norm(x.to(kGpu).transpose(1, 2), weight_there, bias_there, 1e-5, at::kFloat), ours));
  for (const float bad : {1e30F, std::numeric_limits<float>::quiet_NaN()}) {
    at::Tensor overflown = at::zeros({2, 20}, kGpu);
    overflown[1][3] = bad;
    const at::Tensor y = layer_norm(overflown, weight.to(kGpu), bias.to(kGpu), 1e-5, at::kFloat);
    EXPECT_TRUE(y[1].isnan().all().item<bool>()) << bad;
    EXPECT_TRUE(y[0].isfinite().all().item<bool>()) << bad;
  }
}

TEST_F(NnCuda, WhatIsNotTrainedGetsNoGradient) {
  const at::Tensor x = at::randn({8, 32}, kGpu).requires_grad_(), weight = at::ones({32}, kGpu),
                   bias = at::zeros({32}, kGpu);
  layer_norm(x, weight, bias, 1e-5, at::kFloat).square().sum().backward();
  EXPECT_TRUE(x.grad().defined());
  const at::Tensor trained = at::ones({32}, kGpu).requires_grad_();
  layer_norm(x.detach(), trained, bias, 1e-5, at::kFloat).square().sum().backward();
  EXPECT_TRUE(trained.grad().defined());
}

TEST_F(NnCuda, RepeatsAreEqualBitForBit) {
  const Tensors inputs{at::randn({20'000, 771}, kGpu), at::randn({771}, kGpu), at::randn({771}, kGpu)};
  const auto norm = [](const Tensors& t) { return layer_norm(t[0], t[1], t[2], 1e-5, at::kFloat); };
  const Outcome first = run_with_gradients(norm, inputs);
  const auto gelu_first = gpu::bias_gelu_backward(inputs[0], inputs[0], inputs[1], gpu::GeluForm::kExact, true);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Outcome again = run_with_gradients(norm, inputs);
    EXPECT_TRUE(at::equal(again.y, first.y));
    for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(at::equal(again.gradients[i], first.gradients[i]));
    const auto gelu = gpu::bias_gelu_backward(inputs[0], inputs[0], inputs[1], gpu::GeluForm::kExact, true);
    EXPECT_TRUE(at::equal(gelu.x, gelu_first.x) && at::equal(gelu.bias, gelu_first.bias));
  }
}

}  // namespace
}  // namespace sluice::nn
