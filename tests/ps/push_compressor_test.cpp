// Residuals are not lost: sums over random pushes, and descent that needs them.
#include "ps/push_compressor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include <ATen/ATen.h>

#include "core/error.h"

namespace sluice::ps {
namespace {

using Kind = Compression::Kind;

constexpr PushRecord kPush{.examples = 1, .targets = 1};

Layout layout_of_shards(int shards, at::ScalarType dtype) {
  return make_layout({{"a", {7, 9}, {9, 1}}, {"b", {4, 3}, {1, 4}}, {"c", {}, {}}}, {{"mean", 2}},
                     {.shards = shards, .split_bound = 20, .dtype = dtype});
}

struct Case {
  Compression compression;
  at::ScalarType dtype;
  int shards;
};

class PushCompressorTest : public testing::TestWithParam<Case> {
 protected:
  Tensors gradient() {
    Tensors tensors{.statistics = random_numbers(2)};
    for (const Shard& shard : layout_.shards) tensors.shards.push_back(random_numbers(shard.elements));
    return tensors;
  }
  // Magnitudes that differ widely, some 0.
  at::Tensor random_numbers(std::int64_t elements) {
    at::Tensor numbers = at::empty({elements}, at::kDouble);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < elements; ++i)
      numbers[i] = random_() % 8 == 0 ? 0 : normal(random_) * std::exp(3 * normal(random_));
    return numbers.to(layout_.dtype);
  }
  at::Tensor in_doubles(const std::vector<at::Tensor>& shards) const { return at::cat(shards).to(at::kDouble); }
  at::Tensor values_in(const Packed& packed) const {
    return in_doubles(unpack(GetParam().compression, shape_of(layout_), packed)->shards);
  }
  // In the order of the parameters, for any shards.
  static at::Tensor left_in(const PushCompressor& compressor) {
    std::vector<at::Tensor> all;
    for (const auto& [name, residual] : compressor.residuals()) all.push_back(residual.reshape(-1).to(at::kDouble));
    return at::cat(all);
  }
  at::Tensor by_parameter(const at::Tensor& shards) const {
    std::vector<std::int64_t> sizes;
    for (const Shard& shard : layout_.shards) sizes.push_back(shard.elements);
    const auto flat = from_shards(layout_, shards.split_with_sizes(sizes));
    std::vector<at::Tensor> all;
    for (std::size_t p = 0; p < flat.size(); ++p) all.push_back(in_shape(layout_.parameters[p], flat[p]).reshape(-1));
    return at::cat(all);
  }

  Layout layout_ = layout_of_shards(GetParam().shards, GetParam().dtype);
  std::mt19937 random_{5};
};

// Float32: each element within 2^-24 of the sums that were rounded, one a push.
TEST_P(PushCompressorTest, WhatWasPushedAndWhatIsLeftAreWhatWasAccumulated) {
  PushCompressor compressor(GetParam().compression, layout_);
  at::Tensor accumulated = at::zeros({76}, at::kDouble), pushed = at::zeros({76}, at::kDouble),
             rounded = pushed.clone();
  int undone = 0;
  for (int step = 0; step < 400; ++step) {
    const Tensors tensors = gradient();
    const at::Tensor before = left_in(compressor);
    const Packed packed = compressor.compress(kPush, tensors.clone());
    EXPECT_TRUE(compressor.is_open());
    EXPECT_TRUE(at::equal(packed.statistics, tensors.statistics)) << "they are not compressed";
    if (random_() % 3 == 0) {  // its samples go to others
      compressor.undo();
      EXPECT_TRUE(at::equal(left_in(compressor), before));
      ++undone;
      continue;
    }
    compressor.keep();
    accumulated += by_parameter(in_doubles(tensors.shards));
    pushed += by_parameter(values_in(packed));
    rounded += (by_parameter(values_in(packed)) + left_in(compressor)).abs();
  }
  EXPECT_GT(undone, 100);
  const at::Tensor error = (pushed + left_in(compressor) - accumulated).abs();
  const bool is_double = GetParam().dtype == at::kDouble;
  const at::Tensor bound = is_double ? 1e-12 * (1 + rounded) : std::exp2(-24) * rounded + 1e-10;
  EXPECT_TRUE((error <= bound).all().item<bool>()) << error.max().item<double>();
}

TEST_P(PushCompressorTest, OfOneSumNothingIsRounded) {
  for (int round = 0; round < 50; ++round) {
    PushCompressor compressor(GetParam().compression, layout_);
    const Tensors tensors = gradient();
    const Packed packed = compressor.compress(kPush, tensors.clone());
    compressor.keep();
    EXPECT_TRUE(
        at::equal(by_parameter(values_in(packed)) + left_in(compressor), by_parameter(in_doubles(tensors.shards))));
  }
}

TEST_P(PushCompressorTest, APushThatIsInNoUpdateTakesNothingAlong) {
  PushCompressor compressor(GetParam().compression, layout_);
  (void)compressor.compress(kPush, gradient());
  compressor.keep();
  const at::Tensor before = left_in(compressor);
  Tensors zeros = gradient();
  for (at::Tensor& shard : zeros.shards) shard.zero_();
  const Packed packed = compressor.compress({.examples = 1, .targets = 0}, zeros);
  compressor.keep();
  EXPECT_EQ(values_in(packed).count_nonzero().item<int>(), 0);
  EXPECT_TRUE(at::equal(left_in(compressor), before));
}

TEST_P(PushCompressorTest, AnotherGoesOnFromWhatIsLeftWhateverItsShards) {
  PushCompressor first(GetParam().compression, layout_);
  for (int step = 0; step < 3; ++step) {
    (void)first.compress(kPush, gradient());
    first.keep();
  }
  const PushCompressor::Named saved = first.residuals();
  EXPECT_EQ(saved.size(), 3U);
  EXPECT_EQ(saved.at("a").sizes(), (std::vector<std::int64_t>{7, 9}));
  PushCompressor second(GetParam().compression, layout_of_shards(5, GetParam().dtype));
  second.load(saved);
  EXPECT_TRUE(at::equal(left_in(second), left_in(first)));
  for (const char* name : {"a", "c"}) {
    PushCompressor::Named other = saved;
    other.erase(name);
    EXPECT_THROW(second.load(other), CheckpointError);
    other[name] = at::zeros({3}, saved.at(name).options());
    EXPECT_THROW(second.load(other), CheckpointError);
    other[name] = saved.at(name).to(at::kHalf);
    EXPECT_THROW(second.load(other), CheckpointError);
  }
  EXPECT_TRUE(at::equal(left_in(second), left_in(first))) << "a refusal changes nothing";
}

TEST_P(PushCompressorTest, WhatIsNotFiniteGoesToTheServerAndIsUndoneThere) {
  PushCompressor compressor(GetParam().compression, layout_);
  (void)compressor.compress(kPush, gradient());
  compressor.keep();
  const at::Tensor before = left_in(compressor);
  Tensors bad = gradient();
  bad.shards.front()[-1] = INFINITY;
  EXPECT_FALSE(values_in(compressor.compress(kPush, bad)).isfinite().all().item<bool>());
  compressor.undo();
  EXPECT_TRUE(at::equal(left_in(compressor), before));
}

TEST_P(PushCompressorTest, ThePushBeforeIsSettledFirst) {
  PushCompressor compressor(GetParam().compression, layout_);
  EXPECT_THROW(compressor.keep(), BugError);
  EXPECT_THROW(compressor.undo(), BugError);
  (void)compressor.compress(kPush, gradient());
  EXPECT_THROW((void)compressor.compress(kPush, gradient()), BugError);
  EXPECT_THROW(compressor.load(compressor.residuals()), BugError);
  compressor.keep();
  EXPECT_THROW((void)compressor.compress({.targets = 1, .payload = Payload::kWeights}, gradient()), BugError);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PushCompressorTest,
                         testing::Values(Case{{Kind::kBf16}, at::kFloat, 1}, Case{{Kind::kBf16}, at::kDouble, 3},
                                         Case{{Kind::kTopK, 0.05}, at::kFloat, 3},
                                         Case{{Kind::kTopK, 0.05}, at::kDouble, 1},
                                         Case{{Kind::kTopK, 1.0}, at::kFloat, 9}));

TEST(PushCompressor, WithoutCompressionTensorsPassAndNothingIsLeft) {
  const Layout layout = layout_of_shards(1, at::kFloat);
  PushCompressor compressor({}, layout);
  const Tensors weights{.shards = {at::randn({76})}, .statistics = at::randn({2})};
  const Packed packed = compressor.compress({.targets = 3, .payload = Payload::kWeights}, weights);
  compressor.keep();
  EXPECT_TRUE(at::equal(unpack({}, shape_of(layout), packed)->shards[0], weights.shards[0]));
  EXPECT_EQ(packed.bytes(), 78 * 4);
  EXPECT_TRUE(compressor.residuals().empty());
}

// Three workers' losses |w - c|^2 / 2, whose c differ by far in one coordinate and are equal in the others. The sum of
// their gradients there is 0 at the start, which is best for it; one number of each gradient is sent, so without
// feedback it is always that one and w stays where it began. With it w comes to the mean of all c.
TEST(PushCompressor, DescentOnWhatIsSentComesToTheBestOnlyWithFeedback) {
  const Layout layout = make_layout({{"w", {8}, {1}}}, {}, {.dtype = at::kDouble});
  const Compression one_of_eight{.kind = Kind::kTopK, .ratio = 0.125};
  const at::Tensor best = at::tensor({0.0, 1.0, -2.0, 3.0, 1.5, -1.0, 2.0, -3.0}, at::kDouble);
  const auto descend = [&](bool feeds_back) {
    std::vector<PushCompressor> workers(3, PushCompressor(one_of_eight, layout));
    at::Tensor weights = at::zeros({8}, at::kDouble);
    for (int step = 0; step < 5000; ++step) {
      at::Tensor sum = at::zeros({8}, at::kDouble);
      for (std::size_t w = 0; w < 3; ++w) {
        Tensors gradient{.shards = {weights - best}, .statistics = at::empty({0}, at::kDouble)};
        gradient.shards[0][0] -= w == 0 ? 200 : -100;
        sum += unpack(one_of_eight, shape_of(layout), workers[w].compress(kPush, std::move(gradient)))->shards[0];
        feeds_back ? workers[w].keep() : workers[w].undo();
      }
      weights -= std::min(5e-3, 2.0 / (step + 1)) * sum / 3;
    }
    return weights;
  };
  EXPECT_LE((descend(true) - best).abs().max().item<double>(), 0.05);
  EXPECT_EQ(descend(false).abs().max().item<double>(), 0) << "it has not moved at all";
}

}  // namespace
}  // namespace sluice::ps
