// cluster_runs: runs on clusters for the tests of them, from layers that are all alike.
#pragma once

#include <cstdint>
#include <vector>

#include "tune/cluster.h"

namespace sluice::tune {

// Layers of so many seconds a sample, a third of it forward.
inline std::vector<LayerCost> alike_layers(int count, double seconds, std::uint64_t gradient_bytes = 0,
                                           std::uint64_t output_bytes = 0) {
  const LayerCost layer{.forward = {.b_s = seconds / 3},
                        .input_gradient = {.b_s = seconds / 3},
                        .weight_gradient = {.b_s = seconds / 3},
                        .output_bytes = output_bytes,
                        .parameter_bytes = gradient_bytes,
                        .gradient_bytes = gradient_bytes};
  return std::vector(count, layer);
}

// One replica of so many devices; micro-batches of 2 samples. Links cost nothing.
inline ClusterRun cluster_run(const std::vector<LayerCost>& layers, int devices, int chunks, int devices_per_node) {
  return {.request = {.plan = {.chunks = chunks, .global_batch = std::int64_t{2} * chunks},
                      .devices = devices,
                      .layers = static_cast<int>(layers.size())},
          .layers = layers,
          .cluster = {.devices_per_node = devices_per_node}};
}

inline ClusterStep one_step(const ClusterRun& run, int devices) {
  return predict_cluster(run, std::vector{devices}).steps.at(0);
}

inline double sum_of_parts(const ClusterStep& step) {
  return step.compute + step.bubble + step.borders + step.all_reduce + step.update + step.stragglers;
}

}  // namespace sluice::tune
