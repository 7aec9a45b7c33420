#include <gtest/gtest.h>

#include <cmath>

#include "nn/attention.h"
#include "nn/compare.h"
#include "nn/gelu.h"

namespace sluice::nn {
namespace {

class TransformerTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(6); }
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, GetParam()); }
};

TEST_P(TransformerTest, GeluEqualsAutogradOverItsWholeRange) {
  const at::Tensor x = at::linspace(-12, 12, 10007, GetParam());
  expect_equal_gradients([](const Tensors& t) { return nn::gelu(t[0]); },
                         [](const Tensors& t) { return at::gelu(t[0]); }, {x}, tolerance_of(GetParam()));
  const at::Tensor error = (nn::gelu(x).to(at::kDouble) - at::gelu(x.to(at::kDouble))).abs().max();
  EXPECT_LE(error.item<double>(), 1e-6);
}

at::Tensor heads_of(const at::Tensor& x, std::int64_t heads) {
  return x.reshape({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
}

at::Tensor plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t heads) {
  const std::int64_t head_width = q.size(2) / heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_width));
  const at::Tensor p = at::softmax(at::matmul(heads_of(q, heads), heads_of(k, heads).transpose(2, 3)) * scale, -1);
  return at::matmul(p, heads_of(v, heads)).transpose(1, 2).reshape(q.sizes());
}

TEST_P(TransformerTest, SelfAttentionEqualsTheFormula) {
  // Head widths 64, 16 and 5 (no fast path); 300 tokens are beyond the fast path's limit.
  for (const auto& [tokens, width, heads] : {std::array{65, 192, 3}, std::array{17, 64, 4}, std::array{4, 15, 3},
                                             std::array{300, 32, 2}, std::array{1, 16, 1}}) {
    expect_equal_gradients(
        [h = heads](const Tensors& t) { return self_attention(t[0], {.heads = h, .site = "a"}, {.training = true}); },
        [h = heads](const Tensors& t) {
          const auto parts = t[0].chunk(3, 2);
          return plain(parts[0], parts[1], parts[2], h);
        },
        {random({2, tokens, 3 * width})}, tolerance_of(GetParam()));
  }
}

TEST_P(TransformerTest, CrossAttentionEqualsTheFormula) {
  for (const auto& [queries, keys, width, heads] : {std::array{1, 65, 192, 3}, std::array{9, 20, 32, 2}}) {
    expect_equal_gradients(
        [h = heads](const Tensors& t) {
          return cross_attention(t[0], t[1], {.heads = h, .site = "a"}, {.training = true});
        },
        [h = heads](const Tensors& t) {
          const auto parts = t[1].chunk(2, 2);
          return plain(t[0], parts[0], parts[1], h);
        },
        {random({3, queries, width}), random({3, keys, 2 * width})}, tolerance_of(GetParam()));
  }
}

TEST_P(TransformerTest, TanhGeluEqualsTheFormulaOfGpt2) {
  const at::Tensor x = at::linspace(-12, 12, 10007, GetParam());
  expect_equal_gradients([](const Tensors& t) { return nn::gelu_tanh(t[0]); },
                         [](const Tensors& t) {
                           const double factor = std::sqrt(2 / std::acos(-1.0));
                           return 0.5 * t[0] * (1 + at::tanh(factor * (t[0] + 0.044715 * t[0].pow(3))));
                         },
                         {x}, tolerance_of(GetParam()));
}

at::Tensor plain_causal(const at::Tensor& packed, std::int64_t heads) {
  const auto parts = packed.chunk(3, 2);
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < packed.size(1); ++i) {
    rows.push_back(plain(parts[0].narrow(1, i, 1), parts[1].narrow(1, 0, i + 1), parts[2].narrow(1, 0, i + 1), heads));
  }
  return at::cat(rows, 1);
}

TEST_P(TransformerTest, CausalAttentionLooksAtNoLaterPosition) {
  // Head widths with and without a fast path when not causal.
  for (const auto& [tokens, width, heads] :
       {std::array{17, 64, 4}, std::array{4, 15, 3}, std::array{40, 32, 2}, std::array{1, 16, 1}}) {
    expect_equal_gradients(
        [h = heads](const Tensors& t) {
          return self_attention(t[0], {.heads = h, .site = "a", .causal = true}, {.training = true});
        },
        [h = heads](const Tensors& t) { return plain_causal(t[0], h); }, {random({2, tokens, 3 * width})},
        tolerance_of(GetParam()));
  }
}

TEST_P(TransformerTest, CausalAttentionDropsByTheKeyedMaskWhateverTheChunking) {
  const at::Tensor packed = random({4, 6, 3 * 8});
  const AttentionOptions options{.heads = 2, .dropout = 0.3, .site = "a", .causal = true};
  const auto run = [&](const at::Tensor& x, std::int64_t first, std::int64_t count) {
    return self_attention(x.narrow(0, first, count), options,
                          {.training = true, .seed = 3, .step = 2, .sample_ids = at::arange(first, first + count)});
  };
  const at::Tensor whole = run(packed, 0, 4);
  EXPECT_LE(relative_error(whole, at::cat({run(packed, 0, 3), run(packed, 3, 1)})), tolerance_of(GetParam()));
  EXPECT_GE(relative_error(whole, plain_causal(packed, 2)), 0.01) << "nothing was dropped";
  at::Tensor other = packed.clone();
  other.narrow(1, 5, 1).add_(1);  // the last position
  EXPECT_TRUE(at::equal(run(other, 0, 4).narrow(1, 0, 5), whole.narrow(1, 0, 5)));
}

TEST_P(TransformerTest, AttentionSurvivesLargeScores) {
  const at::Tensor packed = random({2, 20, 3 * 32}) * 40;
  const at::Tensor y = self_attention(packed, {.heads = 2, .site = "a"}, {});
  const auto parts = packed.to(at::kDouble).chunk(3, 2);
  EXPECT_LE(relative_error(y, plain(parts[0], parts[1], parts[2], 2)), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Types, TransformerTest, testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace sluice::nn
