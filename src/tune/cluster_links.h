// cluster_links: where the replicas of a pipeline lie in a cluster, and what their links cost: of borders between
// stages, and of sums over replicas.
// Replicas follow one another on devices in a row: device g is in node g / devices_per_node. So the stages of a replica
// are neighbours, and their borders leave a node as seldom as they can.
// Sums are hierarchical: inside a node the replicas there reduce-scatter, then a ring of the nodes adds up, then the
// replicas inside gather. Both halves inside make one ring. Messages of borders do not slow sums down, nor each other.
// Pure. Units: seconds, bytes.
#pragma once

#include <optional>
#include <vector>

#include "core/link_cost.h"

namespace sluice::tune {

struct Cluster {
  int devices_per_node = 1;
  LinkCost inside;   // from a device to another of its node
  LinkCost between;  // from a node to another; its devices share it
  double noise = 0;  // standard deviation of a replica's step without its sums, as a share of the mean; normal
};

struct Placement {
  int devices = 1;  // of a replica
  int replicas = 1;
  int devices_per_node = 1;

  [[nodiscard]] int nodes() const;
  // The offsets in a node at which replicas begin; each once.
  [[nodiscard]] std::vector<int> offsets() const;
  // Of one stage, in a node that has most of them.
  [[nodiscard]] int local_replicas() const;
  // Over which a stage is summed.
  [[nodiscard]] int summing_nodes() const;
};

// An all-reduce over a ring: 2 (n - 1) messages one after another, each with a part of n of the bytes.
[[nodiscard]] LinkCost ring_cost(int members, const LinkCost& link);

// Of a bucket over all replicas, where it has the node's link for itself; nothing: there is one replica.
[[nodiscard]] std::optional<LinkCost> sum_cost(const Placement& placement, const Cluster& cluster);

// [stage]: to the next one, of a replica that begins at this offset in a node. owners: [stage], its device in the
// replica. As StepOverheads::borders.
[[nodiscard]] std::vector<LinkCost> border_costs(const std::vector<int>& owners, int offset, const Cluster& cluster);

// The stages that share the link of a node, for each set of them that occurs. As StepOverheads::networks.
[[nodiscard]] std::vector<std::vector<int>> shared_networks(const std::vector<int>& owners, const Placement& placement);

}  // namespace sluice::tune
