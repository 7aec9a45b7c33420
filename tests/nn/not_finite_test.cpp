// Every layer passes NaN and infinities on as ATen does: with one in each input, parameter, buffer and incoming
// gradient, outputs and gradients are NaN or infinite if those of ATen are. Winograd may spread one over its sample.
#include "nn/not_finite.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <tuple>
#include <vector>

#include "core/concat.h"
#include "nn/attention.h"
#include "nn/batch_norm.h"
#include "nn/batch_norm_fast.h"
#include "nn/compare.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/gelu.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/pool.h"
#include "nn/replica_sum.h"
#include "nn/weight_queue.h"
#include "nn/winograd.h"

namespace sluice::nn::not_finite {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
constexpr double kEpsilon = 1e-5;

using Function = std::function<at::Tensor(const Tensors&)>;

Outcome run(const Function& f, const Tensors& inputs, const at::Tensor& upstream) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
  const at::Tensor y = f(leaves);
  y.backward(upstream);
  Outcome outcome{y.detach(), {}};
  for (const at::Tensor& leaf : leaves) outcome.gradients.push_back(leaf.grad());
  return outcome;
}

class NotFinite : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::manual_seed(17);
    at::set_num_threads(1);  // the tensors are tiny
  }
  void TearDown() override { at::set_num_threads(threads_); }
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, GetParam()); }
  at::Tensor images(at::IntArrayRef sizes) const { return random(sizes).contiguous(kLast); }
  bool is_float() const { return GetParam() == at::kFloat; }

  void expect_like(const std::string& name, const Function& ours, const Function& reference, const Tensors& inputs,
                   MaySpread spread = MaySpread::kNowhere) {
    const at::Tensor y = reference(inputs);
    const at::Tensor upstream = at::sin(at::arange(y.numel(), at::kDouble) * 0.7 + 0.3).view(y.sizes()).to(GetParam());
    for (std::size_t target = 0; target <= inputs.size(); ++target) {
      for (const double value : not_finite_values()) {
        for (const int site : {0, 1, 2}) {
          Tensors changed = inputs;
          at::Tensor gradient = upstream;
          at::Tensor& at_target = target == inputs.size() ? gradient : changed[target];
          at_target = with_value_at(at_target, site, value);
          const std::string what =
              concat(name, ", ", value, " in ", target == inputs.size() ? "the gradient" : concat("input ", target),
                     ", place ", site);
          const Outcome a = run(ours, changed, gradient), b = run(reference, changed, gradient);
          expect_same_not_finite(a.y, b.y, spread, what + ", output");
          for (std::size_t i = 0; i < inputs.size(); ++i) {
            ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined()) << what << ", gradient " << i;
            if (a.gradients[i].defined())
              expect_same_not_finite(a.gradients[i], b.gradients[i], spread, concat(what, ", gradient ", i));
          }
          if (HasFailure()) return;  // the first of a layer says enough
        }
      }
    }
  }

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(NotFinite, Linear) {
  for (const auto& [rows, in, out] : {std::array{3, 5, 7}, std::array{320, 96, 288}, std::array{320, 288, 96}}) {
    expect_like(
        concat("linear ", rows), [](const Tensors& t) { return linear(t[0], {t[1]}, {t[2]}, ForwardContext{}); },
        [](const Tensors& t) { return at::linear(t[0], t[1], t[2]); },
        {random({rows, in}), random({out, in}), random({out})});
  }
  expect_like(
      "linear [in, out]",
      [](const Tensors& t) { return linear(t[0], {t[1]}, {t[2]}, ForwardContext{}, WeightLayout::kInOut); },
      [](const Tensors& t) { return at::matmul(t[0], t[1]) + t[2]; }, {random({2, 3, 8}), random({8, 6}), random({6})});
  expect_like(
      "packed",
      [](const Tensors& t) {
        return linear(t[0], {t[1], t[2]}, {t[3], t[4]}, ForwardContext{});
      },
      [](const Tensors& t) {
        return at::cat({at::linear(t[0], t[1], t[3]), at::linear(t[0], t[2], t[4])}, -1);
      },
      {random({2, 3, 8}), random({4, 8}), random({6, 8}), random({4}), random({6})});
}

TEST_P(NotFinite, Convolution) {
  struct Shape {
    std::vector<std::int64_t> x, weight;
    std::int64_t stride, padding;
    int largest_tile;  // of Winograd's algorithms
    std::int64_t groups = 1;
  };
  const std::vector<Shape> shapes{
      {{2, 16, 8, 8}, {16, 16, 3, 3}, 1, 1, 2},   {{3, 16, 5, 7}, {32, 16, 3, 3}, 1, 1, 2},
      {{2, 16, 15, 17}, {16, 16, 3, 3}, 1, 1, 4}, {{8, 16, 8, 7}, {32, 16, 3, 3}, 1, 1, 4},
      {{1, 16, 4, 4}, {16, 16, 3, 3}, 1, 1, 0},  // too few tiles
      {{2, 3, 8, 8}, {16, 3, 3, 3}, 1, 1, 0},     {{2, 16, 8, 8}, {8, 16, 1, 1}, 2, 0, 0},
      {{1, 3, 16, 16}, {8, 3, 7, 7}, 2, 3, 0},    {{2, 16, 8, 8}, {16, 1, 7, 7}, 1, 3, 0, 16}};
  for (const Shape& s : shapes) {
    const Tensors inputs{images(s.x), images(s.weight), random({s.weight[0]})};
    for (const auto& [allowed, tile] : {std::pair{Winograd::k2x2, 2}, {Winograd::k4x4, s.largest_tile}}) {
      const int expected = s.largest_tile > 0 && is_float() ? tile : 0;
      ASSERT_EQ(winograd_tile(inputs[0], inputs[1], s.stride, s.padding, allowed), expected);
      expect_like(
          concat("convolution of ", inputs[0].sizes(), ", tiles of ", expected),
          [&, most = allowed](const Tensors& t) {
            return conv2d(t[0], t[1], t[2], s.stride, s.padding, nullptr, nullptr, most);
          },
          [&](const Tensors& t) { return at::conv2d(t[0], t[1], t[2], s.stride, s.padding, 1, s.groups); }, inputs,
          expected > 0 ? MaySpread::kInItsRow : MaySpread::kNowhere);
    }
  }
}

TEST_P(NotFinite, BatchNorm) {
  // 16 and 112 channels have the fast path in float32: groups of one, two and four vectors.
  for (const std::int64_t channels : {5, 16, 112}) {
    for (const bool with_residual : {false, true}) {
      for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
        Tensors inputs{images({2, channels, 3, 5}), random({channels}), random({channels})};
        if (with_residual) inputs.push_back(images({2, channels, 3, 5}));
        ASSERT_EQ(batch_norm_has_fast_path(inputs[0], with_residual ? inputs[3] : at::Tensor(), inputs[1]),
                  is_float() && channels > 5);
        expect_like(
            concat("batch-norm of ", channels, with_residual ? ", residual" : "",
                   activation == Activation::kRelu ? ", ReLU" : ""),
            [&](const Tensors& t) {
              return batch_norm_training(t[0], with_residual ? t[3] : at::Tensor(), t[1], t[2], kEpsilon, activation).y;
            },
            [&](const Tensors& t) {
              at::Tensor y = at::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, kEpsilon, false);
              if (with_residual) y = y + t[3];
              return activation == Activation::kRelu ? at::relu(y) : y;
            },
            inputs);
      }
    }
  }
}

// A batch norm with given parameters and buffers.
struct NormLayer : RegisteredLayer {
  NormLayer(const Tensors& values, std::size_t first)
      : RegisteredLayer("bn", {.dtype = values[first].scalar_type()}), norm(registry_, "bn", values[first].numel()) {
    for (std::size_t i = 0; i < 2; ++i) parameters()[i]->value = values[first + i];
    for (std::size_t i = 0; i < 2; ++i) buffers()[i]->value = values[first + 2 + i].detach().clone();
  }
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override {
    return norm(x, context, Activation::kRelu);
  }
  BatchNorm2d norm;
};

TEST_P(NotFinite, BatchNormWithRunningStatistics) {
  for (const std::int64_t channels : {5, 16}) {
    const Tensors inputs{images({2, channels, 3, 5}), random({channels}), random({channels}), random({channels}),
                         random({channels}).abs() + 0.5};
    expect_like(
        "evaluation", [](const Tensors& t) { return NormLayer(t, 1).forward(t[0], {}); },
        [](const Tensors& t) {
          return at::relu(at::batch_norm(t[0], t[1], t[2], t[3].detach(), t[4].detach(), false, 0.1, kEpsilon, false));
        },
        inputs);
    const auto outputs = [](const at::Tensor& y, const at::Tensor& mean, const at::Tensor& variance) {
      return at::cat({y.flatten(), mean, variance});
    };
    expect_like(
        "training",
        [&](const Tensors& t) {
          NormLayer layer(t, 1);
          const at::Tensor y = layer.forward(t[0], {.training = true});
          return outputs(y, layer.buffers()[0]->value, layer.buffers()[1]->value);
        },
        [&](const Tensors& t) {
          const at::Tensor mean = t[3].detach().clone(), variance = t[4].detach().clone();
          const at::Tensor y = at::relu(at::batch_norm(t[0], t[1], t[2], mean, variance, true, 0.1, kEpsilon, false));
          return outputs(y, mean, variance);
        },
        inputs);
  }
}

// The other replica has the same samples, so both have the same statistics.
class Twin final : public ReplicaSum {
 public:
  at::Tensor sum(const at::Tensor& own) override { return own * 2; }
};

TEST_P(NotFinite, SynchronisedBatchNorm) {
  Twin twin;
  expect_like(
      "synchronised",
      [&](const Tensors& t) {
        const Tensors values{t[1], t[2], at::zeros_like(t[1]), at::ones_like(t[1])};
        return NormLayer(values, 0).forward(t[0], {.training = true, .replicas = &twin});
      },
      [](const Tensors& t) {
        const auto [variance, mean] =
            at::var_mean(t[0], at::IntArrayRef{0, 2, 3}, /*unbiased=*/false, /*keepdim=*/true);
        const auto wide = [](const at::Tensor& values) { return values.view({1, -1, 1, 1}); };
        return at::relu((t[0] - mean) * (wide(t[1]) * (variance + kEpsilon).rsqrt()) + wide(t[2]));
      },
      {images({2, 16, 3, 5}), random({16}), random({16})});
}

// ATen would continue with finite outputs and an infinite running variance.
TEST(NotFiniteBatchNorm, AVarianceBeyondTheTypeIsNaNAndNot1OverInfinity) {
  at::manual_seed(18);
  for (const auto& [type, channels, size] :
       {std::tuple{at::kFloat, 16, 1e25}, std::tuple{at::kFloat, 5, 1e25}, std::tuple{at::kDouble, 16, 1e200}}) {
    const at::Tensor large = (at::randn({2, channels, 3, 5}, type) * size).contiguous(kLast);
    const at::Tensor weight = at::ones({channels}, type), bias = at::zeros({channels}, type);
    const at::Tensor y = batch_norm_training(large, {}, weight, bias, kEpsilon, Activation::kRelu).y;
    EXPECT_TRUE(y.isnan().all().item<bool>()) << type << " " << channels;
  }
  const at::Tensor x = (at::randn({2, 16, 3, 5}) * 1e25).contiguous(kLast), one = at::ones({16}),
                   zero = at::zeros({16});
  Twin twin;
  const Tensors values{one, zero, zero, one};
  EXPECT_TRUE(NormLayer(values, 0).forward(x, {.training = true, .replicas = &twin}).isnan().all().item<bool>());
}

TEST_P(NotFinite, Pooling) {
  for (const PoolShape& shape :
       {PoolShape{.kernel = 3, .stride = 2, .padding = 1}, PoolShape{.kernel = 2, .stride = 2}}) {
    expect_like(
        concat("maximum of ", shape.kernel), [&](const Tensors& t) { return max_pool2d(t[0], shape); },
        [&](const Tensors& t) { return at::max_pool2d(t[0].contiguous(), shape.kernel, shape.stride, shape.padding); },
        {images({2, 5, 8, 8})});
  }
  expect_like(
      "mean", [](const Tensors& t) { return adaptive_avg_pool2d(t[0], 7); },
      [](const Tensors& t) {
        return at::adaptive_avg_pool2d(t[0], {7, 7});
      },
      {images({2, 5, 8, 8})});
}

TEST_P(NotFinite, Gelu) {
  const at::Tensor x = random({37});
  expect_like(
      "GELU", [](const Tensors& t) { return nn::gelu(t[0]); }, [](const Tensors& t) { return at::gelu(t[0]); }, {x});
  expect_like(
      "GELU by tanh", [](const Tensors& t) { return nn::gelu_tanh(t[0]); },
      [](const Tensors& t) {
        const double factor = std::sqrt(2 / std::acos(-1.0));
        return 0.5 * t[0] * (1 + at::tanh(factor * (t[0] + 0.044715 * t[0].pow(3))));
      },
      {x});
}

at::Tensor heads_of(const at::Tensor& x, std::int64_t heads) {
  return x.reshape({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
}

// The plain formula. Causal: row by row, so that NaN does not reach later keys, as it does by their zeros in a matrix.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t heads,
                           bool causal = false, const std::function<at::Tensor(const at::Tensor&)>& drop = {}) {
  if (causal) {
    Tensors rows;
    for (std::int64_t i = 0; i < q.size(1); ++i)
      rows.push_back(plain_attention(q.narrow(1, i, 1), k.narrow(1, 0, i + 1), v.narrow(1, 0, i + 1), heads));
    return at::cat(rows, 1);
  }
  const at::Tensor scores = at::matmul(heads_of(q, heads), heads_of(k, heads).transpose(2, 3)) /
                            std::sqrt(static_cast<double>(q.size(2) / heads));
  at::Tensor p = at::softmax(scores, -1);
  if (drop) p = drop(p);
  return at::matmul(p, heads_of(v, heads)).transpose(1, 2).reshape(q.sizes());
}

TEST_P(NotFinite, Attention) {
  struct Shape {
    std::int64_t samples, tokens, width, heads;
    bool causal;
  };
  // Head widths of 16 have the fast paths in float32: up to 256 tokens, and beyond or causal in blocks.
  for (const Shape& s : {Shape{2, 21, 32, 2, false}, Shape{1, 1, 16, 1, false}, Shape{2, 7, 15, 3, false},
                         Shape{1, 257, 16, 1, false}, Shape{2, 9, 32, 2, true}, Shape{2, 60, 16, 1, true}}) {
    expect_like(
        concat("attention over ", s.tokens, s.causal ? ", causal" : ""),
        [&](const Tensors& t) {
          return self_attention(t[0], {.heads = s.heads, .site = "a", .causal = s.causal}, {.training = true});
        },
        [&](const Tensors& t) {
          const auto parts = t[0].chunk(3, 2);
          return plain_attention(parts[0], parts[1], parts[2], s.heads, s.causal);
        },
        {random({s.samples, s.tokens, 3 * s.width})},
        // Matrices multiply NaN by the zeros of later keys.
        s.causal ? MaySpread::kInItsRow : MaySpread::kNowhere);
  }
  for (const bool causal : {false, true}) {
    const at::Tensor packed = at::full({1, 9, 96}, 1e25, GetParam());
    const at::Tensor y = self_attention(packed, {.heads = 2, .site = "a", .causal = causal}, {});
    EXPECT_EQ(y.isnan().all().item<bool>(), is_float());
  }
  expect_like(
      "attention to others",
      [](const Tensors& t) { return cross_attention(t[0], t[1], {.heads = 2, .site = "a"}, {.training = true}); },
      [](const Tensors& t) {
        const auto parts = t[1].chunk(2, 2);
        return plain_attention(t[0], parts[0], parts[1], 2);
      },
      {random({2, 3, 32}), random({2, 21, 64})});
  const ForwardContext context{.training = true, .seed = 3, .step = 2, .sample_ids = at::arange(2)};
  expect_like(
      "attention with dropout",
      [&](const Tensors& t) { return self_attention(t[0], {.heads = 2, .dropout = 0.4, .site = "a"}, context); },
      [&](const Tensors& t) {
        const auto parts = t[0].chunk(3, 2);
        return plain_attention(parts[0], parts[1], parts[2], 2, false,
                               [&](const at::Tensor& p) { return p * dropout_mask(p, 0.4, "a", context); });
      },
      {random({2, 9, 96})});
}

TEST_P(NotFinite, LayerNormEmbeddingAndDropout) {
  struct Norm : RegisteredLayer {
    explicit Norm(const Tensors& t)
        : RegisteredLayer("ln", {.dtype = t[1].scalar_type()}), norm(registry_, "ln", t[1].numel(), kEpsilon) {
      for (std::size_t i = 0; i < 2; ++i) parameters()[i]->value = t[1 + i];
    }
    at::Tensor forward(const at::Tensor& x, const ForwardContext&) override { return norm(x); }
    LayerNorm norm;
  };
  expect_like(
      "layer-norm", [](const Tensors& t) { return Norm(t).forward(t[0], {}); },
      [](const Tensors& t) {
        const auto [variance, mean] = at::var_mean(t[0], at::IntArrayRef{-1}, /*unbiased=*/false, /*keepdim=*/true);
        return (t[0] - mean) * (variance + kEpsilon).rsqrt() * t[1] + t[2];
      },
      {random({4, 37}), random({37}), random({37})});
  const at::Tensor tokens = at::arange(12).view({3, 4}) % 6;  // every row of the table
  expect_like(
      "embedding", [&](const Tensors& t) { return nn::embedding(tokens, t[0], nullptr); },
      [&](const Tensors& t) {
        return t[0].index_select(0, tokens.flatten()).view({3, 4, -1});
      },
      {random({6, 5})});
  const ForwardContext context{.training = true, .sample_ids = at::arange(3)};
  expect_like(
      "dropout", [&](const Tensors& t) { return nn::dropout(t[0], 0.5, "d", context); },
      [&](const Tensors& t) { return t[0] * dropout_mask(t[0], 0.5, "d", context); }, {random({3, 7})});
}

TEST_P(NotFinite, QueuedWeightGradients) {
  const at::Tensor x = images({2, 16, 8, 8}), weight = images({16, 16, 3, 3});
  for (const double value : not_finite_values()) {
    const at::Tensor own = weight.detach().clone().requires_grad_(), leaf = x.detach().clone().requires_grad_();
    own.mutable_grad() = at::zeros_like(own);
    WeightGradQueue queue;
    const at::Tensor y = conv2d(leaf, own, {}, 1, 1, &queue, nullptr);
    y.backward(with_value_at(at::ones_like(y), 1, value));
    queue.run();
    EXPECT_FALSE(own.grad().isfinite().all().item<bool>()) << value;
    EXPECT_FALSE(leaf.grad().isfinite().all().item<bool>()) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, NotFinite, testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace sluice::nn::not_finite
