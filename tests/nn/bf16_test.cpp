// Layers that compute in bfloat16 with float32 parameters (nn/bfloat16.h), compared with float64.
#include "nn/bfloat16.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "nn/attention.h"
#include "nn/batch_norm.h"
#include "nn/compare.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/gelu.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/replica_sum.h"
#include "nn/weight_queue.h"
#include "task/task.h"

namespace sluice::nn {
namespace {

constexpr double kRounding = 1.0 / 256;  // of a number, at most

// f(x, parameters, context), with x in bfloat16 or float64 and parameters of float32 or float64.
using Operation = std::function<at::Tensor(const at::Tensor&, const Tensors&, const ForwardContext&)>;

struct Run {
  at::Tensor y, grad_x;
  Tensors gradients;
};

Run run(const Operation& f, const at::Tensor& x, const Tensors& parameters, const ForwardContext& context) {
  const at::Tensor leaf = x.detach().clone().requires_grad_();
  Tensors own;
  for (const at::Tensor& parameter : parameters) own.push_back(parameter.detach().clone().requires_grad_());
  const at::Tensor y = f(leaf, own, context);
  const at::Tensor upstream = at::sin(at::arange(y.numel(), at::kDouble) * 0.7 + 0.3).view(y.sizes());
  y.backward(upstream.to(at::kBFloat16).to(y.scalar_type()));  // the same numbers for both types
  if (context.weight_queue != nullptr) context.weight_queue->run();
  Run result{y.detach(), leaf.grad(), {}};
  for (const at::Tensor& parameter : own) result.gradients.push_back(parameter.grad());
  return result;
}

void expect_equal(const Run& a, const Run& b) {
  EXPECT_TRUE(at::equal(a.y, b.y));
  EXPECT_TRUE(at::equal(a.grad_x, b.grad_x));
  for (std::size_t i = 0; i < a.gradients.size(); ++i) EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << i;
}

void expect_near_exact(const Operation& f, const at::Tensor& x, const Tensors& parameters,
                       double tolerance = kRounding) {
  Tensors exact;
  for (const at::Tensor& parameter : parameters) exact.push_back(parameter.to(at::kDouble));
  const Run ours = run(f, x, parameters, {}), theirs = run(f, x.to(at::kDouble), exact, {});
  EXPECT_EQ(ours.y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(ours.grad_x.scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_error(ours.y, theirs.y), tolerance);
  EXPECT_LE(relative_error(ours.grad_x, theirs.grad_x), tolerance);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(ours.gradients[i].scalar_type(), at::kFloat);
    EXPECT_LE(relative_error(ours.gradients[i], theirs.gradients[i]), tolerance) << "parameter " << i;
  }

  WeightGradQueue queue;
  TransformedWeights kept;
  expect_equal(run(f, x, parameters, {.weight_queue = &queue}), ours);
  Tensors leaves;  // the same values at one address, as in a pass of several micro-batches
  for (const at::Tensor& parameter : parameters) leaves.push_back(parameter.clone().requires_grad_());
  const ForwardContext keeping{.transformed_weights = &kept};
  const at::Tensor once = f(x, leaves, keeping), again = f(x, leaves, keeping);
  EXPECT_TRUE(at::equal(once, ours.y));
  EXPECT_TRUE(at::equal(again, ours.y));
  EXPECT_GT(kept.bytes(), 0U);
}

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kBFloat16); }

class Bf16 : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(5); }
};

TEST_F(Bf16, LinearOfEachLayoutAndPackedIsNearTheExactOne) {
  for (const std::int64_t rows : {3, 300}) {
    expect_near_exact(
        [](const auto& x, const Tensors& p, const auto& context) { return linear(x, {p[0]}, {p[1]}, context); },
        random({rows, 2, 48}), {at::randn({32, 48}), at::randn({32})});
    expect_near_exact([](const auto& x, const Tensors& p,
                         const auto& context) { return linear(x, {p[0]}, {p[1]}, context, WeightLayout::kInOut); },
                      random({rows, 48}), {at::randn({48, 32}), at::randn({32})});
    expect_near_exact(
        [](const auto& x, const Tensors& p, const auto& context) {
          return linear(x, {p[0], p[1]}, {p[2], p[3]}, context);
        },
        random({rows, 48}), {at::randn({32, 48}), at::randn({16, 48}), at::randn({32}), at::randn({16})});
  }
}

struct ConvCase {
  const char* name;
  std::int64_t in, out, kernel, stride, groups, side;
  Winograd winograd;
};

class Bf16Conv : public testing::TestWithParam<ConvCase> {};

TEST_P(Bf16Conv, IsNearTheExactOne) {
  at::manual_seed(6);
  const ConvCase& c = GetParam();
  const Operation f = [&c](const at::Tensor& x, const Tensors& p, const ForwardContext& context) {
    return conv2d(x, p[0], p[1], c.stride, c.kernel / 2, context.weight_queue, context.transformed_weights, c.winograd);
  };
  const at::Tensor x = random({4, c.in, c.side, c.side}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor weight =
      at::randn({c.out, c.in / c.groups, c.kernel, c.kernel}).contiguous(at::MemoryFormat::ChannelsLast);
  expect_near_exact(f, x, {weight, at::randn({c.out})}, c.winograd == Winograd::k4x4 ? 5 * kRounding : 2 * kRounding);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Bf16Conv,
                         testing::Values(ConvCase{"Stem", 3, 16, 3, 1, 1, 9, Winograd::k2x2},
                                         ConvCase{"Plain", 32, 48, 3, 1, 1, 9, Winograd::kNone},
                                         ConvCase{"Winograd2x2", 32, 48, 3, 1, 1, 9, Winograd::k2x2},
                                         ConvCase{"Winograd4x4", 32, 48, 3, 1, 1, 33, Winograd::k4x4},
                                         ConvCase{"Strided", 32, 48, 3, 2, 1, 9, Winograd::k2x2},
                                         ConvCase{"Shortcut", 32, 64, 1, 2, 1, 8, Winograd::k2x2},
                                         ConvCase{"Narrow", 4, 8, 1, 2, 1, 8, Winograd::k2x2},
                                         ConvCase{"SmallMap", 256, 512, 3, 1, 1, 4, Winograd::k2x2},
                                         ConvCase{"SmallMapPlain", 272, 528, 3, 1, 1, 5, Winograd::kNone},
                                         ConvCase{"SmallMapStrided", 256, 512, 3, 2, 1, 9, Winograd::k2x2},
                                         ConvCase{"OnePixel", 512, 512, 3, 1, 1, 1, Winograd::k2x2},
                                         ConvCase{"NotQuiteSmall", 256, 512, 3, 1, 1, 6, Winograd::kNone},
                                         ConvCase{"Depthwise", 24, 24, 7, 1, 24, 9, Winograd::k2x2}),
                         [](const auto& info) { return std::string(info.param.name); });

// oneDNN leaves the gradients of taps that read only padding uninitialised.
TEST_F(Bf16, TheWeightGradientOfTapsThatSeePaddingAloneIsZero) {
  struct Shape {
    std::int64_t in, out, kernel, stride, height, width;
  };
  for (const auto& s :
       {Shape{16, 32, 3, 2, 1, 1}, Shape{64, 128, 3, 2, 5, 1}, Shape{256, 512, 5, 1, 1, 8}, Shape{16, 32, 3, 1, 1, 1},
        Shape{24, 24, 7, 1, 2, 2}, Shape{17, 33, 7, 2, 3, 3}, Shape{16, 32, 3, 4, 3, 3}}) {
    const at::Tensor x = random({2, s.in, s.height, s.width}).contiguous(at::MemoryFormat::ChannelsLast),
                     weight = at::randn({s.out, s.in, s.kernel, s.kernel}).contiguous(at::MemoryFormat::ChannelsLast);
    for (int again = 0; again < 3; ++again) {
      at::full_like(weight, std::numeric_limits<float>::quiet_NaN());  // which the memory then holds
      expect_near_exact(
          [&s](const at::Tensor& input, const Tensors& p, const ForwardContext& context) {
            return conv2d(input, p[0], {}, s.stride, s.kernel / 2, context.weight_queue, context.transformed_weights,
                          Winograd::k2x2);
          },
          x, {weight}, 2 * kRounding);
    }
  }
}

// Equal bit for bit to the plain sum of rounded weights, so no Winograd transform is involved.
TEST_F(Bf16, TheForwardPassOfAConvolutionIsThePlainSum) {
  const at::Tensor x = random({4, 32, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast), w = at::randn({32, 32, 3, 3});
  const at::Tensor y = conv2d(x, w, {}, 1, 1, nullptr, nullptr, Winograd::k2x2);
  EXPECT_TRUE(at::equal(y, at::conv2d(x, w.to(at::kBFloat16), {}, 1, 1)));
}

// Normalised in float32, added, clamped, rounded once; with and without the fast path.
TEST_F(Bf16, BatchNormRoundsOnce) {
  for (const std::int64_t channels : {32, 6}) {
    const at::Tensor x = random({4, channels, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast),
                     residual = random({4, channels, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast),
                     weight = at::randn({channels}), bias = at::randn({channels});
    const auto wide =
        batch_norm_training(x.to(at::kFloat), residual.to(at::kFloat), weight, bias, 1e-5, Activation::kRelu);
    const auto ours = batch_norm_training(x, residual, weight, bias, 1e-5, Activation::kRelu);
    EXPECT_TRUE(at::equal(ours.y, wide.y.to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(ours.statistics.mean, wide.statistics.mean));
    EXPECT_TRUE(at::equal(ours.statistics.variance, wide.statistics.variance));
    EXPECT_EQ(ours.statistics.variance.scalar_type(), at::kFloat);
  }
}

TEST_F(Bf16, BatchNormOfEvaluationAndOfReplicasIsInFloat) {
  class Alone final : public ReplicaSum {
   public:
    [[nodiscard]] at::Tensor sum(const at::Tensor& own) override { return own.clone(); }
  } alone;
  Registry registry({.seed = 1, .in_bf16 = true});
  BatchNorm2d norm(registry, "bn", 32);
  const at::Tensor x = random({4, 32, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor alone_y = norm(x, {.training = true}, Activation::kNone);
  const at::Tensor synced = norm(x, {.training = true, .replicas = &alone}, Activation::kNone);
  EXPECT_EQ(synced.scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_error(synced, alone_y), 1e-3);
  EXPECT_EQ(norm(x, {}, Activation::kRelu).scalar_type(), at::kBFloat16);
  for (const Buffer* buffer : registry.buffers()) EXPECT_NE(buffer->value.scalar_type(), at::kBFloat16) << buffer->name;
}

TEST_F(Bf16, LayerNormIsRoundedOnceWhateverComesIn) {
  Registry registry({.seed = 1, .in_bf16 = true});
  const LayerNorm norm(registry, "ln", 48, 1e-5);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({7, 48}).to(type);
    EXPECT_TRUE(at::equal(norm(x), at::layer_norm(x.to(at::kFloat), {48}).to(at::kBFloat16)));
  }
}

TEST_F(Bf16, LayerNormAddsGradientsUpInFloat) {
  Registry registry({.seed = 1, .in_bf16 = true});
  const LayerNorm norm(registry, "ln", 48, 1e-5);
  const at::Tensor x = random({1 << 14, 48}), grad = random({1 << 14, 48}) + 0.5;
  norm(x).backward(grad);
  EXPECT_LE(relative_error(registry.parameters()[1]->value.grad(), grad.to(at::kDouble).sum(0)), 1e-5);
  const at::Tensor normalised = at::layer_norm(x.to(at::kDouble), {48}, {}, {}, 1e-5);
  EXPECT_LE(relative_error(registry.parameters()[0]->value.grad(), (normalised * grad.to(at::kDouble)).sum(0)), 1e-4);
}

TEST_F(Bf16, TheBiasGradientOfALinearMapIsNotRounded) {
  const at::Tensor x = random({1 << 10, 48}), grad = random({1 << 10, 32}) + 0.5, exact = grad.to(at::kDouble).sum(0);
  WeightGradQueue queue;
  for (WeightGradQueue* const deferred : {static_cast<WeightGradQueue*>(nullptr), &queue}) {
    const at::Tensor weight = at::randn({32, 48}).requires_grad_(), bias = at::randn({32}).requires_grad_();
    linear(x, {weight}, {bias}, {.weight_queue = deferred}).backward(grad);
    queue.run();
    EXPECT_LE(relative_error(bias.grad(), exact), 1e-5);
  }
}

TEST_F(Bf16, DropoutScalesByAFactorOfFloat) {
  const at::Tensor x = at::ones({2, 1000}, at::kBFloat16) * 131;
  const at::Tensor y = dropout(x, 0.1, "place", {.training = true, .sample_ids = at::arange(2)});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  const at::Tensor kept = y.masked_select(y.ne(0));
  EXPECT_TRUE(kept.eq(146).all().item<bool>());  // 145.6; 1 / 0.9 rounded to bfloat16 gives 145
}

TEST_F(Bf16, AttentionOfEveryPathIsNearTheExactOne) {
  const at::Tensor packed = random({2, 9, 96});
  const ForwardContext training{.training = true, .sample_ids = at::arange(2)};
  for (const AttentionOptions& options :
       {AttentionOptions{.heads = 2}, AttentionOptions{.heads = 2, .causal = true}, AttentionOptions{.heads = 4},
        AttentionOptions{.heads = 2, .dropout = 0.3, .site = "attention"}}) {
    const at::Tensor y = self_attention(packed, options, training);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_LE(relative_error(y, self_attention(packed.to(at::kDouble), options, training)), 2 * kRounding);
  }
}

TEST_F(Bf16, TheLossIsThatOfTheSameLogitsInFloat) {
  const at::Tensor logits = random({5, 10}), targets = at::randint(0, 10, {5});
  const at::Tensor loss = task::make_classification(0.1)->loss({logits}, {targets});
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(loss, task::make_classification(0.1)->loss({logits.to(at::kFloat)}, {targets})));
  const auto count = [&](const at::Tensor& x) { return task::make_classification()->count({x}, {targets}); };
  EXPECT_TRUE(at::equal(count(logits), count(logits.to(at::kFloat))));
}

TEST_F(Bf16, NaNAndInfinitiesComeThrough) {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const at::Tensor x = random({2, 32, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
    x[1][3][2][2] = value;
    const at::Tensor w = at::randn({32, 32, 3, 3}).requires_grad_(), leaf = x.clone().requires_grad_();
    const at::Tensor y = conv2d(leaf, w, {}, 1, 1, nullptr, nullptr, Winograd::k2x2);
    EXPECT_FALSE(y[1].isfinite().all().item<bool>());
    EXPECT_TRUE(y[0].isfinite().all().item<bool>());
    y.backward(x);  // the gradient has it too
    EXPECT_FALSE(w.grad().isfinite().all().item<bool>());
    EXPECT_FALSE(leaf.grad()[1].isfinite().all().item<bool>());
    EXPECT_FALSE(nn::gelu(x)[1].isfinite().all().item<bool>());
    const auto norm = batch_norm_training(x, {}, at::ones({32}), at::zeros({32}), 1e-5, Activation::kRelu);
    EXPECT_TRUE(norm.y.select(1, 3).isnan().any().item<bool>());
  }
}

}  // namespace
}  // namespace sluice::nn
