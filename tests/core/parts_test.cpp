#include "core/parts.h"

#include <gmock/gmock.h>

#include "core/rng.h"

namespace sluice {
namespace {

TEST(Parts, WithoutWeightsSizesDifferByOneLargerOnesFirst) {
  EXPECT_THAT(Parts(4).sizes(10), testing::ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(Parts(3).sizes(2), testing::ElementsAre(1, 1, 0));
  EXPECT_EQ(Parts(4).largest(10), 3);
}

TEST(Parts, SizesAreTheWeightsIfTheyAreTheWholeSum) {
  EXPECT_THAT(Parts(3, {5, 1, 4}).sizes(10), testing::ElementsAre(5, 1, 4));
  EXPECT_THAT(Parts(3, {5, 1, 4}).sizes(100), testing::ElementsAre(50, 10, 40));
  EXPECT_EQ(Parts(3, {1, 5, 4}).largest(10), 5);
}

TEST(Parts, AnyWeightsGiveConsecutivePartsThatAreOffByLessThanOne) {
  RngStream rng(5);
  for (int i = 0; i < 2000; ++i) {
    const auto number = 1 + static_cast<std::int64_t>(rng.below(6));
    std::vector<int> weights;
    std::int64_t sum = 0;
    for (std::int64_t part = 0; part < number; ++part)
      sum += weights.emplace_back(static_cast<int>(1 + rng.below(1000)));
    const Parts parts(number, weights);
    const auto count = static_cast<std::int64_t>(rng.below(5000));
    EXPECT_EQ(parts.begin(count, 0), 0);
    EXPECT_EQ(parts.begin(count, number), count);
    for (std::int64_t part = 0; part < number; ++part) {
      const std::int64_t exact = count * weights[part], size = parts.range(count, part).size();
      EXPECT_LT(std::abs(size * sum - exact), sum) << "part " << part << " of " << count;
    }
  }
}

}  // namespace
}  // namespace sluice
