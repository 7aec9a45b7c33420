// RMS norm, rotary positions and SwiGLU, compared with Hugging Face's formulas in float64.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/error.h"
#include "nn/bfloat16.h"
#include "nn/compare.h"
#include "nn/not_finite.h"
#include "nn/rms_norm.h"
#include "nn/rotary.h"
#include "nn/swiglu.h"
#include "nn/weight_queue.h"

namespace sluice::nn {
namespace {

constexpr double kRounding = 1.0 / 256;  // of a bfloat16, at most

class LlamaLayers : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(21); }
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, GetParam()); }
  double tolerance() const { return GetParam() == at::kBFloat16 ? 2 * kRounding : tolerance_of(GetParam()); }
};

at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x / (x.pow(2).mean(-1, /*keepdim=*/true) + epsilon).sqrt() * weight;
}

TEST_P(LlamaLayers, RmsNormIsTheFormula) {
  const at::ScalarType type = GetParam();
  const at::ScalarType weights = type == at::kBFloat16 ? at::kFloat : type;
  for (const auto& [rows, width] : {std::array{1, 1}, std::array{3, 17}, std::array{5, 64}, std::array{700, 40}}) {
    for (const double epsilon : {width == 1 ? 0.2 : 1e-5, 0.5}) {
      expect_equal_gradients([&](const Tensors& t) { return rms_norm(t[0], t[1], epsilon, type); },
                             [&](const Tensors& t) { return plain_rms_norm(t[0], t[1], epsilon); },
                             {random({2, rows, width}) * 3, at::randn({width}, weights)}, tolerance());
    }
  }
}

TEST(RmsNorm, RoundsBeforeAndAfterTheWeightAsHuggingFaceDoes) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({9, 50}) * 2, weight = at::randn({50});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor in = x.to(type), wide = in.to(at::kFloat);
    const at::Tensor normalised = wide * at::rsqrt(wide.pow(2).mean(-1, true) + 1e-6);
    const at::Tensor expected = (weight * normalised.to(at::kBFloat16)).to(at::kBFloat16);
    const at::Tensor y = rms_norm(in, weight, 1e-6, at::kBFloat16);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    // 1 / sqrt(mean) differs in the last bit of float32, so a few numbers round the other way.
    EXPECT_LE(y.ne(expected).sum().item<std::int64_t>(), 4);
    EXPECT_LE(relative_error(y, expected), kRounding / 10);
  }
}

TEST(RmsNorm, WritesTheTypeOfTheActivationsAndReadsTheResidualStream) {
  Registry registry({.seed = 1, .in_bf16 = true});
  const RmsNorm norm(registry, "model.norm", 48, 1e-5);
  ASSERT_EQ(registry.parameters().size(), 1U);
  EXPECT_EQ(registry.parameters()[0]->name, "model.norm.weight");
  EXPECT_EQ(registry.parameters()[0]->role, ParameterRole::kNorm);
  const at::Tensor x = at::randn({300, 48}).requires_grad_(), grad = at::randn({300, 48}).to(at::kBFloat16);
  const at::Tensor y = norm(x);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.backward(grad);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  const at::Tensor exact = x.detach().to(at::kDouble).requires_grad_(),
                   weight = at::ones({48}, at::kDouble).requires_grad_();
  plain_rms_norm(exact, weight, 1e-5).backward(grad.to(at::kDouble));
  EXPECT_LE(relative_error(x.grad(), exact.grad()), 1e-5);
  EXPECT_LE(relative_error(registry.parameters()[0]->value.grad(), weight.grad()), 1e-5) << "summed in float32";
}

TEST(RmsNorm, GradientsDoNotDependOnTheThreads) {
  at::manual_seed(4);
  const Tensors inputs{at::randn({901, 96}), at::randn({96})};
  const auto f = [](const Tensors& t) { return rms_norm(t[0], t[1], 1e-5, at::kFloat); };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Outcome one = run_with_gradients(f, inputs);
  at::set_num_threads(2);
  const Outcome two = run_with_gradients(f, inputs);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.y, two.y));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(one.gradients[i], two.gradients[i])) << i;
}

// rotate_half and apply_rotary_pos_emb of Hugging Face, on each head.
at::Tensor plain_rotary(const at::Tensor& packed, const RotaryOptions& options, std::int64_t heads,
                        const at::Tensor& positions) {
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(2) * rotary_frequencies(options);
  const at::Tensor both = at::cat({angles, angles}, 2);
  const at::Tensor cosine = both.cos().to(at::kDouble), sine = both.sin().to(at::kDouble);
  std::vector<at::Tensor> parts;
  for (std::int64_t h = 0; h < heads; ++h) {
    const at::Tensor x = packed.narrow(2, h * options.head_width, options.head_width);
    const auto halves = x.chunk(2, 2);
    parts.push_back(x * cosine + at::cat({-halves[1], halves[0]}, 2) * sine);
  }
  const std::int64_t rotated = heads * options.head_width;
  parts.push_back(packed.narrow(2, rotated, packed.size(2) - rotated));
  return at::cat(parts, 2);
}

TEST_P(LlamaLayers, RotaryIsTheFormula) {
  for (const auto& [tokens, heads, kv_heads, head_width] :
       {std::array{7, 4, 2, 32}, std::array{1, 1, 1, 2}, std::array{33, 3, 3, 10}, std::array{5, 8, 1, 64}}) {
    const RotaryOptions options{.head_width = head_width, .positions = 100, .theta = 500};
    const Rotary rotary(options);
    const at::Tensor packed = random({2, tokens, (heads + 2 * kv_heads) * head_width});
    const at::Tensor counted = at::arange(tokens).expand({2, tokens}),
                     chosen = at::randint(0, 100, {2, tokens}, at::kLong);
    for (const at::Tensor& positions : {at::Tensor(), counted, chosen}) {
      expect_equal_gradients([&, h = heads, kv = kv_heads](const Tensors& t) { return rotary(t[0], h, kv, positions); },
                             [&, h = heads + kv_heads](const Tensors& t) {
                               return plain_rotary(t[0], options, h, positions.defined() ? positions : counted);
                             },
                             {packed}, tolerance());
    }
  }
}

// transformers 5.24.0, LlamaRotaryEmbedding(config).inv_freq with head_dim 32 and these rope_parameters.
TEST(Rotary, FrequenciesAreThoseOfHuggingFace) {
  const auto expect = [](const RotaryOptions& options, const std::vector<float>& expected) {
    const at::Tensor ours = rotary_frequencies(options);
    ASSERT_EQ(ours.numel(), 16);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_FLOAT_EQ(ours[static_cast<std::int64_t>(i)].item<float>(), expected[i]) << i;
  };
  expect({.head_width = 32, .positions = 1},
         {1, 0.562341332F, 0.316227764F, 0.177827939F, 0.100000001F, 0.0562341288F, 0.0316227786F, 0.0177827943F,
          0.00999999978F, 0.00562341325F, 0.00316227786F, 0.00177827943F, 0.00100000005F, 0.000562341302F,
          0.000316227786F, 0.00017782794F});
  expect({.head_width = 32, .positions = 1, .scaling = RotaryScaling::kLinear, .factor = 4},
         {0.25F, 0.140585333F, 0.079056941F, 0.0444569848F, 0.0250000004F, 0.0140585322F});
  expect({.head_width = 32,
          .positions = 1,
          .theta = 500000,
          .scaling = RotaryScaling::kLlama3,
          .factor = 8,
          .low_factor = 1,
          .high_factor = 4,
          .original_positions = 8192},
         {1, 0.440366626F, 0.193922758F, 0.0853971019F, 0.0376060307F, 0.0165604409F, 0.00729266508F, 0.00321144611F,
          0.000524846022F, 7.78465546e-05F, 3.42810235e-05F, 1.50962178e-05F, 6.64786967e-06F, 2.92749974e-06F,
          1.28917316e-06F, 5.6770881e-07F});
}

TEST(Rotary, ScoresDependOnDistancesAlone) {
  at::manual_seed(5);
  const Rotary rotary({.head_width = 16, .positions = 64});
  const at::Tensor packed = at::randn({1, 6, 3 * 16}, at::kDouble);
  const auto scores = [&](std::int64_t first) {
    const at::Tensor y = rotary(packed, 1, 1, at::arange(first, first + 6).unsqueeze(0))[0];
    return at::mm(y.narrow(1, 0, 16), y.narrow(1, 16, 16).t());
  };
  EXPECT_LE(relative_error(scores(40), scores(0)), 1e-5);
}

TEST(Rotary, RejectsWhatItsTableDoesNotHold) {
  const Rotary rotary({.head_width = 16, .positions = 4});
  const auto run = [&](std::int64_t tokens, const at::Tensor& positions) {
    static_cast<void>(rotary(at::ones({1, tokens, 48}), 1, 1, positions));
  };
  EXPECT_NO_THROW(run(4, {}));
  EXPECT_THROW(run(5, {}), std::exception);
  EXPECT_THROW(run(2, at::tensor({std::int64_t{0}, std::int64_t{4}}).unsqueeze(0)), std::exception);
  EXPECT_THROW(run(2, at::tensor({std::int64_t{-1}, std::int64_t{1}}).unsqueeze(0)), std::exception);
  EXPECT_THROW(Rotary({.head_width = 15, .positions = 4}), ConfigError);
  EXPECT_THROW(Rotary({.head_width = 16, .positions = 0}), ConfigError);
  EXPECT_THROW(Rotary({.head_width = 16, .positions = 4, .scaling = RotaryScaling::kLlama3, .high_factor = 1}),
               ConfigError);
}

at::Tensor plain_swiglu(const at::Tensor& gate, const at::Tensor& up) { return gate / (1 + (-gate).exp()) * up; }

TEST_P(LlamaLayers, SwigluIsTheFormula) {
  for (const std::int64_t width : {1, 16, 37, 1000}) {
    expect_equal_gradients([](const Tensors& t) { return swiglu(t[0]); },
                           [](const Tensors& t) {
                             const auto parts = t[0].chunk(2, -1);
                             return plain_swiglu(parts[0], parts[1]);
                           },
                           {random({2, 3, 2 * width}) * 4}, tolerance());
  }
}

TEST(Swiglu, IsExactOverTheWholeRange) {
  const at::Tensor gate = at::linspace(-80, 80, 20011, at::kFloat).unsqueeze(0);
  const at::Tensor both = at::cat({gate, at::ones_like(gate)}, 1);
  const at::Tensor exact = plain_swiglu(gate.to(at::kDouble), at::ones_like(gate));
  EXPECT_LE(((swiglu(both).to(at::kDouble) - exact).abs() / exact.abs().clamp_min(1e-20)).max().item<double>(), 1e-6);
}

TEST(Swiglu, OfTwoLayersIsOneProductWithDeferredWeightGradients) {
  Registry registry({.seed = 3});
  const Linear gate(registry, "gate", 24, 40, LinearInit::without_bias(0.2)),
      up(registry, "up", 24, 40, LinearInit::without_bias(0.2));
  ASSERT_EQ(registry.parameters().size(), 2U) << "no bias";
  EXPECT_FALSE(gate.has_bias());
  const at::Tensor x = at::randn({5, 24}), grad = at::randn({5, 40});
  const at::Tensor exact_gate = gate.weight().detach().to(at::kDouble).requires_grad_(),
                   exact_up = up.weight().detach().to(at::kDouble).requires_grad_(),
                   exact_x = x.to(at::kDouble).requires_grad_();
  const at::Tensor exact = plain_swiglu(at::mm(exact_x, exact_gate.t()), at::mm(exact_x, exact_up.t()));
  exact.backward(grad.to(at::kDouble));
  WeightGradQueue queue;
  for (WeightGradQueue* const deferred : {static_cast<WeightGradQueue*>(nullptr), &queue}) {
    const at::Tensor leaf = x.clone().requires_grad_();
    for (Parameter* parameter : registry.parameters()) parameter->value.mutable_grad().reset();
    const at::Tensor y = linear_swiglu(leaf, gate, up, {.weight_queue = deferred});
    EXPECT_LE(relative_error(y, exact), kFloatTolerance);
    y.backward(grad);
    EXPECT_EQ(gate.weight().grad().defined(), deferred == nullptr);
    queue.run();
    EXPECT_LE(relative_error(leaf.grad(), exact_x.grad()), kFloatTolerance);
    EXPECT_LE(relative_error(gate.weight().grad(), exact_gate.grad()), kFloatTolerance);
    EXPECT_LE(relative_error(up.weight().grad(), exact_up.grad()), kFloatTolerance);
  }
  EXPECT_LE(relative_error(gate(x, {}), at::mm(x, gate.weight().t())), kFloatTolerance);
}

// With a value that is not finite in each input: results are not finite if those of `reference` are.
void expect_same_numbers(const std::function<at::Tensor(const Tensors&)>& ours,
                         const std::function<at::Tensor(const Tensors&)>& reference, const Tensors& inputs,
                         const char* what) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const double value : not_finite_values()) {
      for (const int place : {0, 1, 2}) {
        Tensors changed = inputs;
        changed[i] = with_value_at(inputs[i], place, value);
        const Outcome a = run_with_gradients(ours, changed), b = run_with_gradients(reference, changed);
        expect_same_not_finite(a.y, b.y, MaySpread::kNowhere, what);
        for (std::size_t j = 0; j < inputs.size(); ++j)
          expect_same_not_finite(a.gradients[j], b.gradients[j], MaySpread::kNowhere, what);
      }
    }
  }
}

TEST(LlamaLayer, ShowsNaNAndInfinities) {
  at::manual_seed(6);
  expect_same_numbers([](const Tensors& t) { return rms_norm(t[0], t[1], 1e-5, at::kFloat); },
                      [](const Tensors& t) { return plain_rms_norm(t[0], t[1], 1e-5); },
                      {at::randn({3, 37}), at::randn({37})}, "RMS norm");
  expect_same_numbers([](const Tensors& t) { return swiglu(t[0]); },
                      [](const Tensors& t) {
                        const auto parts = t[0].chunk(2, -1);
                        return at::silu(parts[0]) * parts[1];
                      },
                      {at::randn({3, 2 * 37})}, "SwiGLU");
  const RotaryOptions options{.head_width = 6, .positions = 9};
  const Rotary rotary(options);
  expect_same_numbers(
      [&](const Tensors& t) { return rotary(t[0], 2, 1); },
      [&](const Tensors& t) {
        return plain_rotary(t[0].to(at::kDouble), options, 3, at::arange(4).expand({2, 4})).to(at::kFloat);
      },
      {at::randn({2, 4, 4 * 6})}, "rotary");
}

INSTANTIATE_TEST_SUITE_P(Types, LlamaLayers, testing::Values(at::kFloat, at::kDouble, at::kBFloat16));

}  // namespace
}  // namespace sluice::nn
