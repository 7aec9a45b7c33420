#include "comm/machine_cores.h"

#include <gtest/gtest.h>

namespace sluice::comm {
namespace {

TEST(MachineCores, AreThemselvesAgainAsText) {
  const MachineCores own = cores_of_this_process();
  EXPECT_FALSE(own.machine.empty());
  EXPECT_FALSE(own.cores.empty());
  EXPECT_EQ(MachineCores::from_text(own.to_text()), own);
  const MachineCores none{"a", {}};
  EXPECT_EQ(MachineCores::from_text(none.to_text()), none);
}

TEST(ShareOfCores, CoresThatSeveralProcessesMayRunOnAreShared) {
  const std::set<int> all{0, 1, 2, 3, 4, 5};
  EXPECT_EQ(cores_of_rank({{"a", all}}, 0), 6);
  EXPECT_EQ(cores_of_rank({{"a", all}, {"b", all}}, 1), 6) << "another machine";
  for (const int rank : {0, 1, 2}) EXPECT_EQ(cores_of_rank({{"a", all}, {"a", all}, {"a", all}}, rank), 2);
  EXPECT_EQ(cores_of_rank({{"a", {0, 1}}, {"a", {2, 3, 4}}}, 0), 2) << "bound to cores of their own";
  EXPECT_EQ(cores_of_rank({{"a", {0, 1}}, {"a", {2, 3, 4}}}, 1), 3);
  EXPECT_EQ(cores_of_rank({{"a", {0, 1, 2, 3}}, {"a", {2, 3}}}, 0), 3);
  EXPECT_EQ(cores_of_rank({{"a", {0, 1, 2, 3}}, {"a", {2, 3}}}, 1), 1);
  EXPECT_EQ(cores_of_rank({{"a", {0}}, {"a", {0}}}, 1), 0.5) << "fewer cores than processes";
  EXPECT_EQ(cores_of_rank({{"a", {}}}, 0), 0);
}

TEST(PlaceOfRank, ProcessesThatDoNotKnowTheirsTakeTheLowestFreeOnes) {
  const auto place = [](const std::vector<MachineCores>& of_ranks, int rank) {
    const LocalPlace found = place_of_rank(of_ranks, rank);
    return std::pair(found.rank, found.size);
  };
  const MachineCores a{"a", {0}}, b{"b", {0}};
  EXPECT_EQ(place({a, b, a}, 0), std::pair(0, 2));
  EXPECT_EQ(place({a, b, a}, 1), std::pair(0, 1));
  EXPECT_EQ(place({a, b, a}, 2), std::pair(1, 2));
  EXPECT_EQ(place({{"a", {0}}, {"a", {1}}}, 1), std::pair(1, 2)) << "bound to cores of their own";
  const MachineCores first{"a", {0}, 1}, second{"a", {0}, 3};
  EXPECT_EQ(place({second, a, first, a}, 1), std::pair(0, 4)) << "in place of a lost process";
  EXPECT_EQ(place({second, a, first, a}, 3), std::pair(2, 4));
  EXPECT_EQ(place({second, a, first, a}, 0), std::pair(3, 4));
}

}  // namespace
}  // namespace sluice::comm
