#include "ddp/addition_sequence.h"

#include <algorithm>

namespace sluice::ddp {

std::vector<Addition> add_in_turn(int replicas) {
  std::vector<Addition> additions;
  for (int replica = 1; replica < replicas; ++replica) additions.push_back({0, replica});
  return additions;
}

std::vector<Addition> add_in_pairs(int replicas) {
  std::vector<Addition> additions;
  for (int apart = 1; apart < replicas; apart *= 2) {
    for (int into = 0; into + apart < replicas; into += 2 * apart) additions.push_back({into, into + apart});
  }
  return additions;
}

std::vector<std::vector<Handover>> spread_in_pairs(int replicas) {
  std::vector<std::vector<Handover>> rounds;
  int apart = 0;
  for (const Addition& addition : add_in_pairs(replicas)) {
    if (addition.from - addition.into != apart) rounds.emplace_back();
    apart = addition.from - addition.into;
    rounds.back().push_back({.from = addition.into, .to = addition.from});
  }
  std::ranges::reverse(rounds);
  return rounds;
}

}  // namespace sluice::ddp
