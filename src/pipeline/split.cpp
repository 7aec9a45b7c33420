#include "pipeline/split.h"

#include <numeric>

#include "core/error.h"

namespace sluice::pipeline {

void check_partition(const Partition& partition, int layers, const std::string& model) {
  const auto& counts = partition.layers_per_stage;
  const int stages = static_cast<int>(counts.size());
  if (stages > layers) {
    throw ConfigError(stages, " stages (pipeline.stages x pipeline.virtual) > the ", layers, " layers of ", model,
                      "; use at most ", layers, " stages or choose a deeper model");
  }
  for (int stage = 0; stage < stages; ++stage) {
    if (counts[stage] < 1)
      throw ConfigError("pipeline.partition gives stage ", stage, " no layer; give every stage at least 1");
  }
  const int sum = std::accumulate(counts.begin(), counts.end(), 0);
  if (sum != layers) {
    throw ConfigError("pipeline.partition adds up to ", sum, " layers, but ", model, " has ", layers,
                      "; make it add up or set pipeline.partition = \"auto\"");
  }
}

std::vector<LayerList> split(LayerList layers, const Partition& partition, const std::string& model) {
  check_partition(partition, static_cast<int>(layers.size()), model);
  std::vector<LayerList> stages;
  auto next = layers.begin();
  for (const int count : partition.layers_per_stage) {
    stages.emplace_back(std::make_move_iterator(next), std::make_move_iterator(next + count));
    next += count;
  }
  return stages;
}

}  // namespace sluice::pipeline
