#include "tune/cluster_links.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "core/divided_up.h"

namespace sluice::tune {
namespace {

LinkCost in_turn(const LinkCost& first, const LinkCost& second) {
  const double per_byte = first.transfer(1) + second.transfer(1);
  LinkCost both{.latency_s = first.latency_s + second.latency_s};
  if (per_byte > 0) both.bytes_per_s = 1 / per_byte;
  return both;
}

}  // namespace

int Placement::nodes() const { return divided_up(devices * replicas, devices_per_node); }

std::vector<int> Placement::offsets() const {
  std::set<int> firsts;
  for (int r = 0; r < std::min(replicas, devices_per_node); ++r) firsts.insert(r * devices % devices_per_node);
  return {firsts.begin(), firsts.end()};
}

int Placement::local_replicas() const { return std::min(replicas, divided_up(devices_per_node, devices)); }

int Placement::summing_nodes() const { return devices >= devices_per_node ? replicas : nodes(); }

LinkCost ring_cost(int members, const LinkCost& link) {
  const double messages = 2.0 * (members - 1);
  if (messages == 0) return {};
  LinkCost cost{.latency_s = messages * link.latency_s};
  if (link.bytes_per_s) cost.bytes_per_s = *link.bytes_per_s * members / messages;
  return cost;
}

std::optional<LinkCost> sum_cost(const Placement& placement, const Cluster& cluster) {
  if (placement.replicas == 1) return std::nullopt;
  return in_turn(ring_cost(placement.local_replicas(), cluster.inside),
                 ring_cost(placement.summing_nodes(), cluster.between));
}

std::vector<LinkCost> border_costs(const std::vector<int>& owners, int offset, const Cluster& cluster) {
  const auto node = [&](int device) { return (offset + device) / cluster.devices_per_node; };
  std::vector<LinkCost> borders(owners.size());
  for (std::size_t s = 0; s + 1 < owners.size(); ++s)
    borders[s] = node(owners[s]) == node(owners[s + 1]) ? cluster.inside : cluster.between;
  return borders;
}

std::vector<std::vector<int>> shared_networks(const std::vector<int>& owners, const Placement& placement) {
  const auto& [devices, replicas, per_node] = placement;
  if (devices <= per_node) return {};
  // For each node: the index of its first device within its replica, and its number of devices.
  std::set<std::pair<int, int>> sets;
  for (int first = 0; first < devices * replicas; first += per_node)
    sets.insert({first % devices, std::min(per_node, devices * replicas - first)});
  std::vector<std::vector<int>> networks;
  for (const auto& [first, count] : sets) {
    std::vector<int>& stages = networks.emplace_back();
    for (std::size_t s = 0; s < owners.size(); ++s)
      if ((owners[s] - first + devices) % devices < count) stages.push_back(static_cast<int>(s));
  }
  return networks;
}

}  // namespace sluice::tune
