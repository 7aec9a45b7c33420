#include "ddp/addition_sequence.h"

#include <algorithm>

namespace sluice::ddp {

std::vector<Addition> add_in_turn(int replicas) {
  std::vector<Addition> additions;
  for (int replica = 1; replica < replicas; ++replica) additions.push_back({{0}, {replica}});
  return additions;
}

std::vector<Addition> add_in_pairs(int replicas) {
  std::vector<Addition> additions;
  for (int apart = 1; apart < replicas; apart *= 2) {
    for (int into = 0; into + apart < replicas; into += 2 * apart) additions.push_back({{into}, {into + apart}});
  }
  return additions;
}

TreeAdditions add_in_tree(std::span<const NumberRange> ranges, std::int64_t all) {
  TreeAdditions result;
  TreeSum<Summand> sum({ranges.front().begin, ranges.back().end}, all);
  const auto add = [&](const TreeNode&, const Summand& left, const Summand& right) {
    result.additions.push_back({left, right});
    return left;
  };
  for (int replica = 0; replica < static_cast<int>(ranges.size()); ++replica) {
    int node = 0;
    for (const TreeNode& own : nodes_within(ranges[static_cast<std::size_t>(replica)], all))
      sum.put(own, Summand{replica, node++}, add);
  }
  for (const TreeNode& node : nodes_within({ranges.front().begin, ranges.back().end}, all))
    result.sums.push_back(sum.at(node));
  return result;
}

std::vector<std::vector<Handover>> spread_in_pairs(int replicas) {
  std::vector<std::vector<Handover>> rounds;
  int apart = 0;
  for (const Addition& addition : add_in_pairs(replicas)) {
    const int into = addition.into.replica, from = addition.from.replica;
    if (from - into != apart) rounds.emplace_back();
    apart = from - into;
    rounds.back().push_back({.from = into, .to = from});
  }
  std::ranges::reverse(rounds);
  return rounds;
}

}  // namespace sluice::ddp
