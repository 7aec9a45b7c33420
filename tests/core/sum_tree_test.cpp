// Sums of a tree, as text with brackets, against the definition, for many ranges and orders of arrival.
#include "core/sum_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "core/concat.h"
#include "core/error.h"

namespace sluice {
namespace {

std::string add(const TreeNode&, const std::string& left, const std::string& right) {
  return concat("(", left, "+", right, ")");
}

std::string by_definition(std::int64_t begin, std::int64_t width, std::int64_t leaves) {
  if (width == 1) return concat(begin);
  const std::string left = by_definition(begin, width / 2, leaves);
  const std::int64_t middle = begin + width / 2;
  return middle < leaves ? concat("(", left, "+", by_definition(middle, width / 2, leaves), ")") : left;
}

std::string root_of(std::int64_t leaves) {
  return by_definition(0, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(leaves))), leaves);
}

TEST(SumTree, TheRootIsPairsThenPairsOfPairs) {
  EXPECT_EQ(root_of(1), "0");
  EXPECT_EQ(root_of(5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(root_of(7), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(SumTree, EveryDistributionAndOrderOfArrivalGivesTheSameSum) {
  std::mt19937 dice(7);
  for (std::int64_t leaves = 1; leaves <= 40; ++leaves) {
    for (std::int64_t parts : {1, 2, 3, 4, 7, 50}) {
      TreeSum<std::string> whole({0, leaves}, leaves);
      for (std::int64_t part = 0; part < parts; ++part) {
        const NumberRange range = part_range(leaves, parts, part);
        std::vector<std::int64_t> order(static_cast<std::size_t>(range.size()));
        std::iota(order.begin(), order.end(), range.begin);
        std::ranges::shuffle(order, dice);
        TreeSum<std::string> sum(range, leaves);
        for (const std::int64_t leaf : order) sum.put({0, leaf}, concat(leaf), add);
        const std::vector<TreeNode> nodes = nodes_within(range, leaves);
        ASSERT_EQ(sum.kept().size(), nodes.size()) << leaves << " leaves, part " << part << " of " << parts;
        for (const TreeNode& node : nodes) whole.put(node, sum.at(node), add);
      }
      ASSERT_EQ(whole.kept().size(), 1U);
      EXPECT_EQ(whole.kept().begin()->second, root_of(leaves)) << parts << " parts";
    }
  }
}

TEST(SumTree, NodesCoverARangeExactlyAndAreFew) {
  for (std::int64_t leaves = 1; leaves <= 33; ++leaves) {
    for (std::int64_t begin = 0; begin <= leaves; ++begin) {
      for (std::int64_t end = begin; end <= leaves; ++end) {
        std::int64_t next = begin;
        const std::vector<TreeNode> nodes = nodes_within({begin, end}, leaves);
        for (const TreeNode& node : nodes) {
          EXPECT_EQ(leaves_of(node, leaves).begin, next);
          next = leaves_of(node, leaves).end;
        }
        EXPECT_EQ(next, end);
        EXPECT_LE(std::ssize(nodes), std::max(1.0, 2 * std::log2(static_cast<double>(leaves))));
        const bool is_aligned =
            end > begin && std::has_single_bit(static_cast<unsigned>(end - begin)) && begin % (end - begin) == 0;
        if (is_aligned) {
          EXPECT_EQ(nodes.size(), 1U) << begin << " to " << end;
        }
      }
    }
  }
}

TEST(SumTree, ALeafThatComesTwiceIsAnError) {
  TreeSum<std::string> sum({0, 4}, 4);
  sum.put({0, 1}, "1", add);
  EXPECT_THROW(sum.put({0, 1}, "1", add), BugError);
}

TEST(Parts, TileTheWholeAndDifferByAtMostOne) {
  for (std::int64_t count = 0; count < 30; ++count) {
    for (std::int64_t parts = 1; parts < 9; ++parts) {
      std::int64_t next = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        const NumberRange range = part_range(count, parts, part);
        EXPECT_EQ(range.begin, next);
        EXPECT_TRUE(range.size() == count / parts || (range.size() == count / parts + 1 && part < count % parts));
        next = range.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace sluice
