// Attention with groups, grouped queries and causal masks, compared with plain attention over each group's positions.
#include "nn/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/concat.h"
#include "nn/compare.h"

namespace sluice::nn {
namespace {

struct Case {
  std::int64_t samples, tokens, heads, kv_heads, head_width;
  bool causal;
  at::Tensor groups;  // undefined: one group

  [[nodiscard]] std::int64_t packed_width() const { return (heads + 2 * kv_heads) * head_width; }
  [[nodiscard]] std::string name() const {
    return concat(samples, " x ", tokens, ", heads ", heads, " / ", kv_heads, " of ", head_width,
                  causal ? ", causal" : "", groups.defined() ? concat(", groups ", groups) : "");
  }
};

// One head of one sample: q [positions, d], k, v -> [positions, d].
at::Tensor one_head(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  at::Tensor scores = at::mm(q, k.t()) / std::sqrt(static_cast<double>(q.size(1)));
  if (causal) {
    const at::Tensor later = at::ones_like(scores).triu(1).to(at::kBool);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  return at::mm(at::softmax(scores, 1), v);
}

at::Tensor by_formula(const at::Tensor& packed, const Case& c) {
  const at::Tensor groups = c.groups.defined() ? c.groups : at::ones({c.samples, c.tokens}, at::kLong);
  std::vector<at::Tensor> samples;
  for (std::int64_t i = 0; i < c.samples; ++i) {
    at::Tensor out = packed[i].narrow(1, 0, c.heads * c.head_width).mul(0);
    for (std::int64_t group = 1; group <= groups.max().item<std::int64_t>(); ++group) {
      const at::Tensor positions = groups[i].eq(group).nonzero().flatten();
      if (positions.numel() == 0) continue;
      const at::Tensor rows = packed[i].index_select(0, positions);
      const auto head = [&](std::int64_t at) { return rows.narrow(1, at * c.head_width, c.head_width); };
      std::vector<at::Tensor> heads;
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const std::int64_t kv = h / (c.heads / c.kv_heads);
        heads.push_back(one_head(head(h), head(c.heads + kv), head(c.heads + c.kv_heads + kv), c.causal));
      }
      out = out.index_copy(0, positions, at::cat(heads, 1));
    }
    samples.push_back(out);
  }
  return at::stack(samples);
}

at::Tensor ours(const at::Tensor& packed, const Case& c) {
  return self_attention(packed, {.heads = c.heads, .site = "a", .causal = c.causal, .kv_heads = c.kv_heads}, {},
                        c.groups);
}

class Attention : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(9); }
  double tolerance() const { return GetParam() == at::kBFloat16 ? 2.0 / 256 : tolerance_of(GetParam()); }
  void expect_formula(const Case& c) {
    SCOPED_TRACE(c.name());
    expect_equal_gradients([&](const Tensors& t) { return ours(t[0], c); },
                           [&](const Tensors& t) { return by_formula(t[0], c); },
                           {at::randn({c.samples, c.tokens, c.packed_width()}, GetParam())}, tolerance());
  }
};

at::Tensor groups_of(const std::vector<std::vector<std::int64_t>>& rows) {
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(at::tensor(row, at::kLong));
  return at::stack(tensors);
}

TEST_P(Attention, OfHandmadeGroupsIsThatOfTheirPositions) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t head_width : {16, 6}) {
      const auto with = [&](const at::Tensor& groups) {
        expect_formula({groups.size(0), groups.size(1), 4, 2, head_width, causal, groups});
      };
      with(groups_of({{1, 1, 1, 0, 0}, {1, 1, 1, 1, 1}, {0, 0, 1, 1, 1}}));  // padding right, none and left
      with(groups_of({{1, 1, 2, 2, 2}, {3, 4, 5, 1, 2}, {7, 0, 0, 5, 5}}));  // documents
      with(groups_of({{1, 0, 1, 1, 0}, {2, 1, 2, 1, 2}, {1, 1, 1, 1, 1}}));  // holes
      with(groups_of({{0, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {1, 1, 0, 0, 0}}));  // a row without text
      with(groups_of({{0, 0, 0}, {0, 0, 0}}));
      with(groups_of({{1}, {0}, {2}}));
    }
  }
}

// Random shapes; each second case has holes.
TEST_P(Attention, OfRandomGroupsIsThatOfTheirPositions) {
  std::mt19937 random(3);
  const auto from = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 40; ++i) {
    const std::int64_t kv_heads = from(1, 3), shared = from(1, 3);
    Case c{from(1, 3),      from(1, 70), kv_heads * shared, kv_heads, i % 3 == 0 ? from(1, 20) : 16 * from(1, 4),
           from(0, 1) == 1, {}};
    if (i % 5 != 0) {
      c.groups = at::randint(0, 4, {c.samples, c.tokens}, at::kLong);
      if (i % 2 == 0) c.groups = at::randint(0, 8, {c.samples, c.tokens}, at::kLong).lt(1).cumsum(1).remainder(9);
    }
    expect_formula(c);
  }
}

TEST_P(Attention, OfLongRowsIsThatOfTheirPositions) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t kv_heads : {1, 3}) {
      expect_formula({1, 330, 3, kv_heads, 32, causal, {}});
      expect_formula({1, 300, 3, kv_heads, 16, causal, at::arange(300).view({1, 300}).floor_divide(70)});
    }
  }
}

TEST_P(Attention, ToPaddingNeverChangesText) {
  const at::Tensor groups = groups_of({{1, 1, 1, 0, 0, 0}, {0, 0, 2, 2, 0, 0}});
  for (const bool causal : {false, true}) {
    const Case c{2, 6, 2, 2, 16, causal, groups};
    const at::Tensor x = at::randn({2, 6, c.packed_width()}, GetParam());
    at::Tensor other = x.clone();
    other.masked_fill_(groups.eq(0).unsqueeze(2), 50);
    const at::Tensor y = ours(x, c);
    EXPECT_TRUE(at::equal(y, ours(other, c)));
    EXPECT_EQ(y.masked_select(groups.eq(0).unsqueeze(2)).abs().max().item<double>(), 0);
  }
}

TEST_P(Attention, ShowsInfinitiesAndNaNOfItsGroup) {
  const at::Tensor groups = groups_of({{1, 1, 1, 2, 2, 0}});
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const bool causal : {false, true}) {
      const Case c{1, 6, 2, 1, 16, causal, groups};
      at::Tensor x = at::randn({1, 6, c.packed_width()}, GetParam());
      x[0][0][(2 + 1) * 16 + 3] = value;  // in a value row of the first group
      x.requires_grad_();
      const at::Tensor y = ours(x, c);
      EXPECT_FALSE(y[0].narrow(0, 0, 3).isfinite().all(1).any().item<bool>()) << value;
      y.sum().backward();
      EXPECT_FALSE(x.grad()[0].narrow(0, 0, 3).isfinite().all(1).any().item<bool>()) << value;
    }
  }
}

at::Tensor dropped(const at::Tensor& packed, const at::Tensor& groups, bool causal) {
  const ForwardContext context{.training = true, .seed = 3, .step = 2, .sample_ids = at::arange(packed.size(0))};
  return self_attention(packed, {.heads = 2, .dropout = 0.4, .site = "a", .causal = causal, .kv_heads = 1}, context,
                        groups);
}

TEST_P(Attention, DropsTheSamePairsWhateverElseIsInTheRow) {
  const at::Tensor packed = at::randn({2, 6, 4 * 8}, GetParam());
  for (const bool causal : {false, true}) {
    const at::Tensor all = dropped(packed, groups_of({{1, 1, 1, 2, 2, 2}, {1, 1, 1, 1, 2, 2}}), causal);
    const at::Tensor first = dropped(packed, groups_of({{1, 1, 1, 0, 0, 0}, {1, 1, 1, 1, 0, 0}}), causal);
    const at::Tensor last = dropped(packed, groups_of({{0, 0, 0, 5, 5, 5}, {3, 2, 1, 3, 7, 7}}), causal);
    EXPECT_TRUE(at::equal(all[0].narrow(0, 0, 3), first[0].narrow(0, 0, 3)));
    EXPECT_TRUE(at::equal(all[1].narrow(0, 0, 4), first[1].narrow(0, 0, 4)));
    EXPECT_TRUE(at::equal(all[0].narrow(0, 3, 3), last[0].narrow(0, 3, 3)));
    EXPECT_TRUE(at::equal(all[1].narrow(0, 4, 2), last[1].narrow(0, 4, 2)));
    const Case c{2, 6, 2, 1, 8, causal, groups_of({{1, 1, 1, 2, 2, 2}, {1, 1, 1, 1, 2, 2}})};
    EXPECT_GE(relative_error(all, by_formula(packed.to(at::kDouble), c)), 0.05) << "nothing was dropped";
  }
}

TEST_P(Attention, RejectsGroupsAndHeadsThatDoNotFit) {
  const at::Tensor packed = at::randn({2, 3, 4 * 16}, GetParam());
  const AttentionOptions options{.heads = 2, .kv_heads = 1};
  EXPECT_THROW(static_cast<void>(self_attention(packed, options, {}, at::ones({2, 4}, at::kLong))), std::exception);
  EXPECT_THROW(static_cast<void>(self_attention(packed, options, {}, at::ones({2, 3}, at::kInt))), std::exception);
  EXPECT_THROW(static_cast<void>(self_attention(packed, {.heads = 3, .kv_heads = 2}, {})), std::exception);
  EXPECT_THROW(static_cast<void>(self_attention(packed, {.heads = 5, .kv_heads = 1}, {})), std::exception);
}

INSTANTIATE_TEST_SUITE_P(Types, Attention, testing::Values(at::kFloat, at::kDouble, at::kBFloat16));

}  // namespace
}  // namespace sluice::nn
