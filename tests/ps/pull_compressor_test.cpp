// The copies of worker and server have the same bits, whichever messages are lost.
#include "ps/pull_compressor.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include <ATen/ATen.h>

namespace sluice::ps {
namespace {

using Kind = Compression::Kind;

struct Case {
  Compression compression;
  at::ScalarType dtype;
};

class PullCompressorTest : public testing::TestWithParam<Case> {
 protected:
  void move_weights() {
    for (at::Tensor& shard : weights_.shards) shard.add_(at::randn(shard.sizes(), generator_, options_) * 0.1);
    weights_.statistics.add_(1);
  }
  static PackedWeights sent(PackedWeights message) {
    for (at::Tensor& shard : message.packed.shards) shard = shard.clone();
    message.packed.statistics = message.packed.statistics.clone();
    return message;
  }
  void expect_shadow(const Tensors& of_worker) {
    for (std::size_t s = 0; s < of_worker.shards.size(); ++s)
      EXPECT_TRUE(at::equal(compressor_.shadow()[s], of_worker.shards[s]));
    EXPECT_TRUE(at::equal(of_worker.statistics, weights_.statistics));
  }
  double distance(const Tensors& of_worker) const {
    return (at::cat(of_worker.shards) - at::cat(weights_.shards)).abs().max().item<double>();
  }

  at::TensorOptions options_ = at::TensorOptions().dtype(GetParam().dtype);
  at::Generator generator_ = at::detail::createCPUGenerator(1);
  Layout layout_ =
      make_layout({{"a", {61}, {1}}, {"b", {40}, {1}}}, {{"mean", 3}}, {.shards = 2, .dtype = GetParam().dtype});
  Tensors weights_{.shards = {at::randn({61}, generator_, options_), at::randn({40}, generator_, options_)},
                   .statistics = at::zeros({3}, options_)};
  PullCompressor compressor_{GetParam().compression, layout_};
  PullDecoder decoder_{GetParam().compression, shape_of(layout_)};
  std::mt19937 random_{2};
};

TEST_P(PullCompressorTest, ShadowAndWorkerAreTheSameBitsThoughMessagesAreLost) {
  int whole = 0, lost = 0, late = 0;
  for (int pull = 0; pull < 1000; ++pull) {
    move_weights();
    const PackedWeights message = sent(compressor_.compress(weights_));
    whole += message.is_whole ? 1 : 0;
    if (random_() % 6 == 0) {
      ++lost;
      if (random_() % 2 == 0) compressor_.restart();  // the worker has noticed by itself, and asks
      continue;
    }
    if (!decoder_.follows(message)) {  // it notices only now
      EXPECT_FALSE(message.is_whole);
      ++late;
      compressor_.restart();
      continue;
    }
    const auto weights = decoder_.take(message);
    ASSERT_TRUE(weights.has_value());
    expect_shadow(*weights);
    EXPECT_TRUE(!message.is_whole || distance(*weights) == 0);
    EXPECT_TRUE(message.is_whole || !decoder_.follows(message)) << "changes count once";
  }
  EXPECT_GT(lost, 100);
  EXPECT_GT(late, 30);
  EXPECT_LT(whole, 300);
}

TEST_P(PullCompressorTest, WhatIsHandedOutStaysAsItIs) {
  Tensors first = *decoder_.take(sent(compressor_.compress(weights_)));
  const Tensors copy = first.clone();
  for (int pull = 0; pull < 5; ++pull) {
    move_weights();
    (void)decoder_.take(sent(compressor_.compress(weights_)));
  }
  for (std::size_t s = 0; s < 2; ++s) EXPECT_TRUE(at::equal(first.shards[s], copy.shards[s]));
}

// bf16: each message brings 8 more bits of what is left. topk: each brings a tenth.
TEST_P(PullCompressorTest, WeightsThatStandStillArrive) {
  (void)decoder_.take(sent(compressor_.compress(weights_)));
  move_weights();
  Tensors got;
  for (int pull = 0; pull < 30; ++pull) got = *decoder_.take(sent(compressor_.compress(weights_)));
  const double unit = GetParam().dtype == at::kDouble ? 0x1p-53 : 0x1p-24;
  EXPECT_LE(distance(got), 4 * unit * at::cat(weights_.shards).abs().max().item<double>());
}

TEST_P(PullCompressorTest, ChangesAreSmall) {
  const std::int64_t all = weights_.bytes();
  EXPECT_EQ(compressor_.compress(weights_).packed.bytes(), all);
  const std::int64_t size = c10::elementSize(GetParam().dtype);
  const std::int64_t expected = GetParam().compression.kind == Kind::kBf16 ? 101 * 2 : (7 + 4) * (size + 4);
  EXPECT_EQ(compressor_.compress(weights_).packed.bytes(), expected + 3 * size);
}

TEST_P(PullCompressorTest, AnotherIncarnationBeginsWithAWholeMessage) {
  (void)decoder_.take(sent(compressor_.compress(weights_)));
  const PackedWeights of_this_incarnation = sent(compressor_.compress(weights_));
  decoder_.forget();
  EXPECT_FALSE(decoder_.follows(of_this_incarnation));
  compressor_ = PullCompressor(GetParam().compression, layout_);
  EXPECT_TRUE(decoder_.follows(compressor_.compress(weights_)));
  decoder_ = PullDecoder(GetParam().compression, shape_of(layout_));
  EXPECT_FALSE(decoder_.follows(compressor_.compress(weights_))) << "changes to what it does not have";
}

TEST_P(PullCompressorTest, AMessageThatIsNoneChangesNothing) {
  const Tensors before = *decoder_.take(sent(compressor_.compress(weights_)));
  move_weights();
  const PackedWeights good = sent(compressor_.compress(weights_));
  PackedWeights shorter = good, fewer = good, whole = good;
  shorter.packed.shards[1] = shorter.packed.shards[1].narrow(0, 0, shorter.packed.shards[1].numel() - 1);
  fewer.packed.shards.pop_back();
  whole.is_whole = true;
  for (const PackedWeights& bad : {shorter, fewer, whole}) {
    ASSERT_TRUE(decoder_.follows(bad));
    EXPECT_FALSE(decoder_.take(bad).has_value());
  }
  for (const std::int64_t sequence : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, std::int64_t{0},
                                      std::int64_t{1}, std::int64_t{3}, std::numeric_limits<std::int64_t>::max()}) {
    PackedWeights other = good;
    other.sequence = sequence;
    EXPECT_FALSE(decoder_.follows(other)) << sequence;
  }
  const auto weights = decoder_.take(good);
  ASSERT_TRUE(weights.has_value());
  expect_shadow(*weights);
}

TEST_P(PullCompressorTest, AChangeThatIsNoNumberIsSentWhole) {
  const double largest = GetParam().dtype == at::kDouble ? std::numeric_limits<double>::max() : 3.4e38;
  weights_.shards[1][3] = largest;
  (void)decoder_.take(sent(compressor_.compress(weights_)));
  weights_.shards[1][3] = -largest;
  const PackedWeights message = sent(compressor_.compress(weights_));
  EXPECT_TRUE(message.is_whole);
  const auto weights = decoder_.take(message);
  ASSERT_TRUE(weights.has_value());
  expect_shadow(*weights);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PullCompressorTest,
                         testing::Values(Case{{Kind::kBf16}, at::kFloat}, Case{{Kind::kBf16}, at::kDouble},
                                         Case{{Kind::kTopK, 0.1}, at::kFloat}, Case{{Kind::kTopK, 0.1}, at::kDouble}));

TEST(PullCompressor, WithoutCompressionEveryMessageIsWholeAndTheServerRemembersNothing) {
  const Layout layout = make_layout({{"a", {5}, {1}}}, {}, {});
  PullCompressor compressor({}, layout);
  PullDecoder decoder({}, shape_of(layout));
  const Tensors weights{.shards = {at::randn({5})}, .statistics = at::empty({0})};
  for (int pull = 0; pull < 3; ++pull) {
    const PackedWeights message = compressor.compress(weights);
    EXPECT_TRUE(message.is_whole);
    EXPECT_TRUE(compressor.shadow().empty());
    EXPECT_TRUE(at::equal(decoder.take(message)->shards[0], weights.shards[0]));
  }
}

}  // namespace
}  // namespace sluice::ps
