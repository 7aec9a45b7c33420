#include "ddp/addition_sequence.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>

namespace sluice::ddp {
namespace {

TEST(AdditionSequence, InTurnIsOneAfterTheOther) {
  EXPECT_EQ(add_in_turn(1), std::vector<Addition>{});
  EXPECT_EQ(add_in_turn(4), (std::vector<Addition>{{{0}, {1}}, {{0}, {2}}, {{0}, {3}}}));
}

TEST(AdditionSequence, InPairsIsPairsThenPairsOfPairs) {
  EXPECT_EQ(add_in_pairs(1), std::vector<Addition>{});
  EXPECT_EQ(add_in_pairs(2), (std::vector<Addition>{{{0}, {1}}}));
  EXPECT_EQ(add_in_pairs(5), (std::vector<Addition>{{{0}, {1}}, {{2}, {3}}, {{0}, {2}}, {{0}, {4}}}));
  EXPECT_EQ(add_in_pairs(8), (std::vector<Addition>{
                                 {{0}, {1}}, {{2}, {3}}, {{4}, {5}}, {{6}, {7}}, {{0}, {2}}, {{4}, {6}}, {{0}, {4}}}));
}

// Every share is added once; in pairs, no replica takes part in more than ceil(log2 R) additions.
TEST(AdditionSequence, InPairsEachShareIsCopiedOnceAndNoReplicaTakesMoreThanALogarithm) {
  for (int replicas = 1; replicas <= 40; ++replicas) {
    std::map<int, std::set<int>> holds;
    std::map<int, int> copies_of;
    for (int r = 0; r < replicas; ++r) holds[r] = {r};
    const std::vector<Addition> additions = add_in_pairs(replicas);
    EXPECT_EQ(std::ssize(additions), replicas - 1);
    for (const Addition& addition : additions) {
      const int into = addition.into.replica, from = addition.from.replica;
      for (const int share : holds.at(from)) EXPECT_TRUE(holds.at(into).insert(share).second) << replicas;
      holds.erase(from);  // written over, or of no use any more
      ++copies_of[into], ++copies_of[from];
    }
    EXPECT_EQ(std::ssize(holds.at(0)), replicas);
    const int rounds = std::bit_width(static_cast<unsigned>(replicas - 1));
    for (const auto& [replica, copies] : copies_of) EXPECT_LE(copies, rounds) << replica << " of " << replicas;
  }
}

// 7 micro-batches on 3 replicas: 0 to 2, 3 and 4, 5 and 6. Nodes: 01 2 | 3 4 | 5 6.
TEST(AdditionSequence, InATreeTheNodesOfReplicasCompleteOneAnother) {
  const std::vector<NumberRange> three{{0, 3}, {3, 5}, {5, 7}};
  const TreeAdditions whole = add_in_tree(three, 7);
  EXPECT_EQ(whole.additions,
            (std::vector<Addition>{
                {{0, 1}, {1, 0}}, {{0, 0}, {0, 1}}, {{1, 1}, {2, 0}}, {{1, 1}, {2, 1}}, {{0, 0}, {1, 1}}}));
  EXPECT_EQ(whole.sums, (std::vector<Summand>{{0, 0}}));
  const TreeAdditions part = add_in_tree(std::span(three).subspan(1), 7);  // of a process without the first replica
  EXPECT_EQ(part.additions, (std::vector<Addition>{{{0, 1}, {1, 0}}, {{0, 1}, {1, 1}}}));
  EXPECT_EQ(part.sums, (std::vector<Summand>{{0, 0}, {0, 1}}));
}

TEST(AdditionSequence, InATreeWithoutMicroBatchesNothingIsAdded) {
  const std::vector<NumberRange> none{{2, 2}, {2, 2}};
  EXPECT_TRUE(add_in_tree(none, 2).additions.empty());
  EXPECT_TRUE(add_in_tree(none, 2).sums.empty());
}

TEST(AdditionSequence, TheWayBackReachesEveryReplicaFromOneThatHasIt) {
  for (int replicas = 1; replicas <= 40; ++replicas) {
    std::set<int> have{0};
    const auto rounds = spread_in_pairs(replicas);
    EXPECT_EQ(std::ssize(rounds), std::bit_width(static_cast<unsigned>(replicas - 1)));
    for (const auto& round : rounds) {
      const std::set<int> before = have;
      for (const auto& [from, to] : round) {
        EXPECT_TRUE(before.contains(from)) << replicas;
        EXPECT_TRUE(have.insert(to).second) << replicas;
      }
    }
    EXPECT_EQ(std::ssize(have), replicas);
  }
}

}  // namespace
}  // namespace sluice::ddp
