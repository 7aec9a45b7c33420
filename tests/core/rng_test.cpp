#include "core/rng.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sluice {
namespace {

// Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ULL, ~0ULL, ~0ULL),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(RngStream, IsAFunctionOfItsKey) {
  static_assert(std::uniform_random_bit_generator<RngStream>);
  RngStream a(7), b(7), c(8);
  EXPECT_EQ(a(), b());
  EXPECT_NE(a(), c());
}

TEST(RngStream, UniformAndNormalHaveTheirMoments) {
  RngStream rng(derive_key(1, hash_name("moments")));
  constexpr int kDraws = 200000;
  double uniform_sum = 0, normal_sum = 0, normal_squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = rng.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform_sum += u;
    const double n = rng.normal();
    normal_sum += n;
    normal_squares += n * n;
  }
  EXPECT_NEAR(uniform_sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(normal_sum / kDraws, 0.0, 0.01);
  EXPECT_NEAR(normal_squares / kDraws, 1.0, 0.02);
}

TEST(RngStream, BelowReachesEveryValueEquallyOften) {
  RngStream rng(3);
  std::map<std::uint64_t, int> counts;
  for (int i = 0; i < 70000; ++i) ++counts[rng.below(7)];
  ASSERT_EQ(counts.size(), 7U);
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, 10000, 500) << value;
}

TEST(DeriveKey, DependsOnOrder) { EXPECT_NE(derive_key(derive_key(1, 2), 3), derive_key(derive_key(1, 3), 2)); }

}  // namespace
}  // namespace sluice
