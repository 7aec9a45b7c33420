// simulated_cluster: a configuration on a cluster that nobody here has, by the profile of one device: how it scales,
// and where its layers freeze, what an elastic pipeline wins epoch by epoch. Not here: the prediction (tune/cluster.h).
// Pure, but for what making a cut logs. Errors: ConfigError.
#pragma once

#include <vector>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "tune/cluster_elastic.h"

namespace sluice::train {

struct ClusterQuestion {
  tune::Cluster cluster;
  int nodes = 1;
  tune::Scaling scaling = tune::Scaling::kWeak;
};

struct SimulatedCluster {
  tune::ClusterPrediction scaling;        // of 1, 2, 4, ... replicas, and all that the nodes have room for
  std::vector<tune::ElasticRow> elastic;  // empty: nothing freezes
};

[[nodiscard]] SimulatedCluster simulate_cluster(const config::Config& config, const profiler::LayerProfile& profile,
                                                const ClusterQuestion& question);

}  // namespace sluice::train
