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

Partition balance(std::span<const LayerCost> costs, int stages) {
  const int layers = static_cast<int>(costs.size());
  check(stages >= 1 && stages <= layers, "balance needs 1 <= stages <= layers");
  std::vector<double> prefix(layers + 1, 0.0);
  for (int i = 0; i < layers; ++i) prefix[i + 1] = prefix[i] + costs[i].total_s();

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

std::vector<double> stage_times(std::span<const LayerCost> costs, const Partition& partition) {
  std::vector<double> times;
  std::size_t layer = 0;
  for (const int count : partition.layers_per_stage) {
    double time = 0;
    for (int i = 0; i < count; ++i) time += costs[layer++].total_s();
    times.push_back(time);
  }
  check(layer == costs.size(), "the partition covers every layer");
  return times;
}

}  // namespace sluice::tune
