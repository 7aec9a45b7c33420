// Compression compared with PyTorch's bf16 and topk, and with ten lines that sort.
#include "ps/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <ATen/ATen.h>

#include "core/error.h"

namespace sluice::ps {
namespace {

using Kind = Compression::Kind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Compression kBf16{.kind = Kind::kBf16};

Compression top(double ratio) { return {.kind = Kind::kTopK, .ratio = ratio}; }

at::Tensor normal(std::int64_t elements, at::ScalarType dtype, std::uint64_t seed) {
  return at::randn({elements}, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kDouble)).to(dtype);
}

at::Tensor there_and_back(const Compression& compression, const at::Tensor& values) {
  const auto back = unpack(compression, values.scalar_type(), values.numel(), pack(compression, values));
  EXPECT_TRUE(back.has_value());
  return back.value_or(at::Tensor());
}

// Float32 by their bits: every upper half with lower halves around the middle between two bf16.
at::Tensor all_roundings() {
  at::Tensor bits = at::empty({65536, 6}, at::kInt);
  const std::array<std::uint32_t, 6> lower{0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
  auto* next = bits.mutable_data_ptr<std::int32_t>();
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (const std::uint32_t low : lower) *next++ = std::bit_cast<std::int32_t>(upper << 16U | low);
  }
  return bits.view(-1).view(at::kFloat);
}

TEST(Compression, Bf16IsPyTorchsAndNoFiniteValueBecomesInfinite) {
  const at::Tensor values = all_roundings();
  const at::Tensor got = there_and_back(kBf16, values), theirs = values.to(at::kBFloat16).to(at::kFloat);
  const at::Tensor overflows = values.isfinite() & ~theirs.isfinite();
  EXPECT_EQ(overflows.sum().item<int>(), 6) << "0x7F7F8000 and above, of both signs";
  EXPECT_TRUE(at::equal(got.masked_select(~overflows).nan_to_num(7), theirs.masked_select(~overflows).nan_to_num(7)));
  EXPECT_TRUE(at::equal(got.isnan(), values.isnan()));
  const double largest = 0x1.FEp127;
  EXPECT_TRUE(at::equal(got.masked_select(overflows), values.masked_select(overflows).sign() * largest));
}

TEST(Compression, Bf16OfDoublesIsThatOfTheirFloats) {
  const at::Tensor values = at::cat({normal(5000, at::kDouble, 1), at::tensor({1e300, -1e300, 1e-300, 3.4e38, 0.0})});
  const at::Tensor got = there_and_back(kBf16, values);
  EXPECT_EQ(got.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(got.narrow(0, 0, 5000), values.narrow(0, 0, 5000).to(at::kBFloat16).to(at::kDouble)));
  EXPECT_EQ(got[5000].item<double>(), 0x1.FEp127);
  EXPECT_EQ(got[5001].item<double>(), -0x1.FEp127);
  EXPECT_EQ(got[5002].item<double>(), 0);
  EXPECT_EQ(got[5003].item<double>(), 0x1.FEp127);
}

TEST(Compression, HowManyAreKept) {
  EXPECT_EQ(kept_of(0.01, 100), 1);
  EXPECT_EQ(kept_of(0.07, 100), 7) << "0.07 * 100 is a little more than 7";
  EXPECT_EQ(kept_of(0.01, 101), 2);
  EXPECT_EQ(kept_of(1e-9, 5), 1);
  EXPECT_EQ(kept_of(1, 5), 5);
  EXPECT_EQ(kept_of(0.5, 0), 0);
  EXPECT_EQ(kept_of(0.3, std::int64_t{1} << 31), 644245095);
}

TEST(Compression, TopKKeepsWhatPyTorchsDoes) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double ratio : {0.001, 0.01, 0.1, 0.5, 1.0}) {
      const at::Tensor values = normal(3001, dtype, 2);
      const std::int64_t kept = kept_of(ratio, 3001);
      const at::Tensor indices = std::get<1>(values.abs().topk(kept));
      const at::Tensor expected = at::zeros_like(values).index_put_({indices}, values.index({indices}));
      EXPECT_TRUE(at::equal(there_and_back(top(ratio), values), expected)) << dtype << " " << ratio;
      EXPECT_EQ(pack(top(ratio), values).numel(), kept * (dtype == at::kDouble ? 12 : 8));
    }
  }
}

TEST(Compression, OfEqualMagnitudesTheFirstAreKept) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const auto elements = std::uniform_int_distribution<std::int64_t>(1, 40)(random);
    const auto dtype = round % 2 == 0 ? at::kFloat : at::kDouble;
    at::Tensor values = at::empty({elements}, at::kDouble);
    for (std::int64_t i = 0; i < elements; ++i) values[i] = std::uniform_int_distribution<int>(-2, 2)(random) * 0.25;
    const double ratio = std::uniform_real_distribution<double>(0.01, 1)(random);
    std::vector<std::int64_t> order(static_cast<std::size_t>(elements));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>{},
                             [&](std::int64_t i) { return std::abs(values[i].item<double>()); });
    at::Tensor expected = at::zeros_like(values);
    for (std::int64_t i = 0; i < kept_of(ratio, elements); ++i) expected[order[i]] = values[order[i]];
    EXPECT_TRUE(at::equal(there_and_back(top(ratio), values.to(dtype)), expected.to(dtype)));
  }
}

TEST(Compression, WhatIsNotFiniteIsNeverHidden) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const Compression& compression : {Compression{}, kBf16, top(0.001)}) {
      for (const double bad : {kNan, -kNan, kInfinity, -kInfinity}) {
        for (const std::int64_t at_index : {0, 1234, 2999}) {
          at::Tensor values = normal(3000, dtype, 4);
          values[100] = dtype == at::kFloat ? 3.4e38 : 1e308;
          values[at_index] = bad;
          const at::Tensor got = there_and_back(compression, values);
          EXPECT_FALSE(got.isfinite().all().item<bool>()) << bad << " at " << at_index;
          EXPECT_EQ(std::isnan(got[at_index].item<double>()), std::isnan(bad));
        }
      }
    }
  }
}

TEST(Compression, ShardsWithoutElementsAndOddOnes) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const Compression& compression : {Compression{}, kBf16, top(0.2)}) {
      for (const std::int64_t elements : {0, 1, 2, 3, 7}) {
        const at::Tensor values = normal(elements, dtype, 5);
        const at::Tensor bytes = pack(compression, values);
        EXPECT_EQ(bytes.scalar_type(), at::kByte);
        EXPECT_EQ(bytes.numel(), packed_bytes(compression, dtype, elements));
        EXPECT_EQ(there_and_back(compression, values).numel(), elements);
      }
    }
  }
}

TEST(Compression, BytesNeedNotLieAsNumbersDo) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const Compression& compression : {Compression{}, kBf16, top(0.3)}) {
      const at::Tensor bytes = pack(compression, normal(50, dtype, 6));
      const at::Tensor expected = *unpack(compression, dtype, 50, bytes);
      for (std::int64_t shift = 0; shift < 9; ++shift) {
        at::Tensor block = at::zeros({bytes.numel() + 16}, at::kByte);
        const at::Tensor moved = block.narrow(0, shift, bytes.numel());
        moved.copy_(bytes);
        EXPECT_TRUE(at::equal(*unpack(compression, dtype, 50, moved), expected)) << shift;
        at::Tensor foreign =
            at::from_blob(static_cast<std::uint8_t*>(block.data_ptr()) + shift, {bytes.numel()}, at::kByte);
        EXPECT_TRUE(at::equal(*unpack(compression, dtype, 50, foreign), expected)) << shift;
      }
    }
  }
}

TEST(Compression, AddingWhatCameIsAddingItsValues) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const Compression& compression : {Compression{}, kBf16, top(0.3)}) {
      const at::Tensor bytes = pack(compression, normal(501, dtype, 7)), start = normal(501, dtype, 8);
      for (const double scale : {1.0, -1.0}) {
        at::Tensor sum = start.clone();
        add_packed(compression, bytes, sum, scale);
        EXPECT_TRUE(at::equal(sum, start + scale * *unpack(compression, dtype, 501, bytes)));
      }
    }
  }
}

TEST(Compression, AnotherNumberOfBytesIsNoShard) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const Compression& compression : {Compression{}, kBf16, top(0.3)}) {
      const at::Tensor bytes = pack(compression, normal(20, dtype, 9));
      for (std::int64_t length = 0; length < 2 * bytes.numel() + 2; ++length) {
        const at::Tensor other = at::cat({bytes, bytes, bytes}).narrow(0, 0, length);
        EXPECT_EQ(unpack(compression, dtype, 20, other).has_value(), length == bytes.numel()) << length;
      }
    }
  }
}

at::Tensor largest_at(const std::vector<std::uint32_t>& indices) {
  const auto kept = static_cast<std::int64_t>(indices.size());
  at::Tensor bytes = at::zeros({kept * 8}, at::kByte);
  std::ranges::copy(indices, static_cast<std::uint32_t*>(bytes.mutable_data_ptr()) + kept);
  return bytes;
}

TEST(Compression, IndicesAscendAndAreInTheShard) {
  const auto is_taken = [](const std::vector<std::uint32_t>& indices) {
    return unpack(top(0.3), at::kFloat, 10, largest_at(indices)).has_value();
  };
  EXPECT_TRUE(is_taken({0, 1, 2}));
  EXPECT_TRUE(is_taken({0, 5, 9}));
  EXPECT_FALSE(is_taken({0, 5, 10})) << "outside";
  EXPECT_FALSE(is_taken({0, 5, 0xFFFFFFFF}));
  EXPECT_FALSE(is_taken({0x80000000, 5, 9}));
  EXPECT_FALSE(is_taken({0, 5, 5})) << "twice";
  EXPECT_FALSE(is_taken({5, 0, 9})) << "not in order";
  EXPECT_FALSE(is_taken({0, 1})) << "too few";
  EXPECT_FALSE(is_taken({0, 1, 2, 3})) << "too many";
}

TEST(Compression, FlippedBitsAreRefusedOrMakeAShardOfTheRightSize) {
  std::mt19937 random(10);
  int refused = 0, taken = 0;
  for (int round = 0; round < 6000; ++round) {
    const auto dtype = round % 2 == 0 ? at::kFloat : at::kDouble;
    const Compression compression = std::array{Compression{}, kBf16, top(0.1)}[round % 3];
    at::Tensor bytes = pack(compression, normal(60, dtype, round)).clone();
    for (int flips = 1 + round % 4; flips > 0; --flips) {
      const auto at = std::uniform_int_distribution<std::int64_t>(0, bytes.numel() - 1)(random);
      static_cast<std::uint8_t*>(bytes.mutable_data_ptr())[at] ^= 1U << (random() % 8);
    }
    const auto values = unpack(compression, dtype, 60, bytes);
    if (!values) {
      ++refused;
      continue;
    }
    ++taken;
    EXPECT_EQ(values->numel(), 60);
    EXPECT_EQ(values->scalar_type(), dtype);
    const std::int64_t most = compression.kind == Kind::kTopK ? 6 : 60;
    EXPECT_LE(values->count_nonzero().item<std::int64_t>(), most);
  }
  EXPECT_GT(refused, 300) << "places are checked";
  EXPECT_GT(taken, 3000) << "values are not";
}

TEST(Compression, AMessageOfAnotherLayoutIsNone) {
  const Layout layout = make_layout({{"a", {30}, {1}}, {"b", {4, 3}, {3, 1}}}, {{"mean", 5}}, {.shards = 2});
  Packed good{.statistics = at::zeros({5})};
  for (const Shard& shard : layout.shards)
    good.shards.push_back(pack(top(0.1), normal(shard.elements, at::kFloat, 11)));
  EXPECT_EQ(good.bytes(), (3 + 2) * 8 + 5 * 4);
  EXPECT_TRUE(unpack(top(0.1), shape_of(layout), good).has_value());
  EXPECT_FALSE(unpack(kBf16, shape_of(layout), good).has_value());
  EXPECT_FALSE(unpack(top(0.2), shape_of(layout), good).has_value());
  Packed fewer = good, swapped = good, statistics = good, doubles = good;
  fewer.shards.pop_back();
  std::swap(swapped.shards[0], swapped.shards[1]);
  statistics.statistics = at::zeros({6});
  doubles.statistics = at::zeros({5}, at::kDouble);
  for (const Packed& other : {fewer, swapped, statistics, doubles})
    EXPECT_FALSE(unpack(top(0.1), shape_of(layout), other).has_value());
}

TEST(Compression, WhatCannotBeSentIsRefusedByName) {
  const auto error_of = [](const Compression& compression, std::int64_t elements, at::ScalarType dtype) -> std::string {
    try {
      check_compression(compression,
                        make_layout({{"w", {elements}, {1}}}, {}, {.split_bound = elements, .dtype = dtype}));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "taken";
  };
  const std::int64_t most = std::int64_t{1} << 31;
  EXPECT_EQ(error_of(top(0.1), most, at::kFloat), "taken");
  EXPECT_THAT(error_of(top(0.1), most + 1, at::kFloat), testing::HasSubstr("raise ps.shards"));
  EXPECT_EQ(error_of(kBf16, most + 1, at::kFloat), "taken");
  EXPECT_THAT(error_of(kBf16, 5, at::kHalf), testing::HasSubstr("Half"));
  EXPECT_EQ(error_of({}, 5, at::kHalf), "taken");
  for (const double ratio : {0.0, -1.0, 1.5, kNan})
    EXPECT_THAT(error_of(top(ratio), 5, at::kFloat), testing::HasSubstr("ps.topk_ratio"));
  EXPECT_FALSE(is_packed(top(1e-9), at::kFloat, most + 1, at::zeros({24}, at::kByte)));
  EXPECT_FALSE(is_packed(kBf16, at::kHalf, 1, at::zeros({2}, at::kByte)));
  EXPECT_THROW((void)compression_named("zip"), ConfigError);
}

}  // namespace
}  // namespace sluice::ps
