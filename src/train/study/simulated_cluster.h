// simulated_cluster: predicts a configuration on a larger cluster (tune/cluster.h) from the profile of one device:
// scaling, and the gain of an elastic pipeline by epoch. Errors: ConfigError.
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
  tune::ClusterPrediction scaling;        // of 1, 2, 4, ... replicas, and as many as the nodes can hold
  std::vector<tune::ElasticRow> elastic;  // empty if nothing freezes
};

[[nodiscard]] SimulatedCluster simulate_cluster(const config::Config& config, const profiler::LayerProfile& profile,
                                                const ClusterQuestion& question);

}  // namespace sluice::train
