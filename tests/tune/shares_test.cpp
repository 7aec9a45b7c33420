#include "tune/shares.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <numeric>

#include "core/rng.h"

namespace sluice::tune {
namespace {

// The shortest time that any division of the units gives.
Nanoseconds least_time(const std::vector<Nanoseconds>& times, int units) {
  Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
  std::vector<std::int64_t> shares(times.size());
  const std::function<void(std::size_t, std::int64_t)> give = [&](std::size_t replica, std::int64_t left) {
    if (replica + 1 == times.size()) {
      shares[replica] = left;
      least = std::min(least, tune::slowest(times, shares));
      return;
    }
    for (shares[replica] = 0; shares[replica] <= left; ++shares[replica]) {
      const std::int64_t own = shares[replica];
      give(replica + 1, left - own);
      shares[replica] = own;
    }
  };
  give(0, units);
  return least;
}

TEST(Shares, FollowTheSpeeds) {
  EXPECT_THAT(fastest_shares({10, 20}, 12), testing::ElementsAre(8, 4));
  EXPECT_THAT(fastest_shares({30, 10, 10, 10}, 20), testing::ElementsAre(2, 6, 6, 6));
  EXPECT_THAT(fastest_shares({7, 7, 7}, 7), testing::ElementsAre(3, 2, 2)) << "as equal shares are";
  EXPECT_THAT(fastest_shares({1, 1000}, 5), testing::ElementsAre(5, 0)) << "a hopeless one is left out";
  EXPECT_THAT(fastest_shares({1, 5}, 5), testing::ElementsAre(5, 0)) << "a tie goes to the first";
}

TEST(Shares, NoDivisionEndsEarlier) {
  RngStream rng(3);
  for (int i = 0; i < 500; ++i) {
    std::vector<Nanoseconds> times;
    const auto replicas = 1 + static_cast<int>(rng.below(4));
    for (int r = 0; r < replicas; ++r) times.push_back(static_cast<Nanoseconds>(1 + rng.below(100)));
    const int units = 1 + static_cast<int>(rng.below(14));
    const std::vector<std::int64_t> shares = fastest_shares(times, units);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), units);
    EXPECT_EQ(tune::slowest(times, shares), least_time(times, units));
  }
}

}  // namespace
}  // namespace sluice::tune
