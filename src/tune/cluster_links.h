// cluster_links: positions of pipeline replicas in a cluster and the link costs of their stage borders and all-reduces.
// Replicas take consecutive devices; device g is in node g / devices_per_node, so few borders cross nodes.
// All-reduces are hierarchical: reduce-scatter inside each node, a ring over the nodes, all-gather inside each node.
// The two steps inside a node cost one ring. Border messages do not slow all-reduces or each other. Pure. Units:
// seconds, bytes.
#pragma once

#include <optional>
#include <vector>

#include "core/link_cost.h"

namespace sluice::tune {

struct Cluster {
  int devices_per_node = 1;
  LinkCost inside;
  LinkCost between;  // between two nodes; shared by a node's devices
  // Standard deviation of a replica's step without its all-reduces, relative to the mean; normally distributed.
  double noise = 0;
};

struct Placement {
  int devices = 1;
  int replicas = 1;
  int devices_per_node = 1;

  [[nodiscard]] int nodes() const;
  // The distinct offsets in a node at which replicas begin.
  [[nodiscard]] std::vector<int> offsets() const;
  // Replicas of one stage in the node that has most of them.
  [[nodiscard]] int local_replicas() const;
  [[nodiscard]] int summing_nodes() const;
};

// A ring all-reduce: 2 (n - 1) sequential messages of bytes / n each.
[[nodiscard]] LinkCost ring_cost(int members, const LinkCost& link);

// Cost of all-reducing a bucket that has the node's link to itself; empty if there is one replica.
[[nodiscard]] std::optional<LinkCost> sum_cost(const Placement& placement, const Cluster& cluster);

// [stage]: cost from it to the next stage, for a replica at this offset in a node. owners: [stage], its device in the
// replica. Fits StepOverheads::borders.
[[nodiscard]] std::vector<LinkCost> border_costs(const std::vector<int>& owners, int offset, const Cluster& cluster);

// Each distinct set of stages that share a node's link. Fits StepOverheads::networks.
[[nodiscard]] std::vector<std::vector<int>> shared_networks(const std::vector<int>& owners, const Placement& placement);

}  // namespace sluice::tune
