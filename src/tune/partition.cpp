#include "tune/partition.h"

#include <algorithm>
#include <limits>

#include "core/check.h"

namespace sluice::tune {
namespace {

// Value of a cut of the first layers: the slowest stage first, then evenness.
struct CutValue {
  double slowest = std::numeric_limits<double>::infinity();
  double squares = std::numeric_limits<double>::infinity();

  auto operator<=>(const CutValue&) const = default;
};

}  // namespace

Partition balance(std::span<const LayerCost> costs, double micro_batch, int stages) {
  const int layers = static_cast<int>(costs.size());
  check(stages >= 1 && stages <= layers, "balance needs 1 <= stages <= layers");
  std::vector<double> prefix(layers + 1, 0.0);
  for (int i = 0; i < layers; ++i) prefix[i + 1] = prefix[i] + costs[i].seconds(micro_batch);

  // best[s][n]: the first n layers in s stages; cut[s][n]: where its last stage begins.
  std::vector<std::vector<CutValue>> best(stages + 1, std::vector<CutValue>(layers + 1));
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(layers + 1, 0));
  best[0][0] = {0.0, 0.0};
  for (int s = 1; s <= stages; ++s) {
    for (int n = s; n <= layers; ++n) {
      for (int begin = s - 1; begin < n; ++begin) {
        const double last = prefix[n] - prefix[begin];
        const CutValue value{std::max(best[s - 1][begin].slowest, last), best[s - 1][begin].squares + last * last};
        if (value < best[s][n]) {
          best[s][n] = value;
          cut[s][n] = begin;
        }
      }
    }
  }
  Partition partition{std::vector<int>(stages)};
  for (int s = stages, end = layers; s > 0; --s) {
    partition.layers_per_stage[s - 1] = end - cut[s][end];
    end = cut[s][end];
  }
  return partition;
}

std::vector<double> stage_times(std::span<const LayerCost> costs, double micro_batch, const Partition& partition) {
  std::vector<double> times;
  std::size_t layer = 0;
  for (const int count : partition.layers_per_stage) {
    double time = 0;
    for (int i = 0; i < count; ++i) time += costs[layer++].seconds(micro_batch);
    times.push_back(time);
  }
  check(layer == costs.size(), "the partition covers every layer");
  return times;
}

std::uint64_t kept_bytes(std::span<const LayerCost> layers, std::uint64_t micro_batch) {
  check(!layers.empty(), "a stage has layers");
  std::uint64_t bytes = layers.front().input_bytes * micro_batch;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    bytes += layers[i].saved_bytes.at(micro_batch);
    const bool is_last = i + 1 == layers.size();
    const bool is_kept = is_last || layers[i + 1].saves_input;
    if (is_kept && !layers[i].saves_output) bytes += layers[i].output_bytes * micro_batch;
  }
  return bytes;
}

}  // namespace sluice::tune
