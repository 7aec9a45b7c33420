#include "tune/reductions.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>

#include "core/ids.h"

namespace sluice::tune {
namespace {

using pipeline::Op;

struct LastBackward {
  double end = 0;
  bool is_weight_only = false;
};

std::vector<LastBackward> last_backwards(const pipeline::Schedule& schedule, const pipeline::Simulation& simulation) {
  std::vector<LastBackward> last(schedule.stages);
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (std::size_t i = 0; i < schedule.devices[device].size(); ++i) {
      const pipeline::Action& action = schedule.devices[device][i];
      if (action.op != Op::kBackward && action.op != Op::kWeightGradient) continue;
      last[index(action.stage)] = {simulation.spans[device][i].end, action.op == Op::kWeightGradient};
    }
  }
  return last;
}

// Splits gradients into buckets from the last layer on. A layer's gradients may be split between buckets.
std::deque<Reduction> buckets_of(const std::vector<LayerGradients>& layers, double bucket_bytes,
                                 const LastBackward& last) {
  std::deque<Reduction> buckets;
  const auto seconds = [&](const LayerGradients& layer) { return last.is_weight_only ? layer.weight : layer.backward; };
  double ready = last.end;
  for (const LayerGradients& layer : layers) ready -= seconds(layer);
  double bytes = 0, whole = last.end;
  for (const LayerGradients& layer : layers) {
    ready += seconds(layer);
    if (layer.bytes > 0) whole = ready;
    bytes += layer.bytes;
    for (; bucket_bytes > 0 && bytes >= bucket_bytes; bytes -= bucket_bytes)
      buckets.push_back({.bytes = bucket_bytes, .ready = ready});
  }
  if (bytes > 0) buckets.push_back({.bytes = bytes, .ready = whole});
  return buckets;
}

}  // namespace

std::vector<Reduction> reductions_of(const pipeline::Schedule& schedule, const pipeline::Simulation& simulation,
                                     const StageGradients& gradients, const ReductionCosts& costs) {
  const std::vector<LastBackward> last = last_backwards(schedule, simulation);
  std::vector<std::deque<Reduction>> waiting;
  for (std::size_t s = 0; s < gradients.size(); ++s)
    waiting.push_back(buckets_of(gradients[s], costs.bucket_bytes, last[s]));
  std::vector<double> stage_free(waiting.size(), 0.0);
  double network_free = 0;
  std::vector<Reduction> done;
  while (true) {
    double soonest = std::numeric_limits<double>::infinity();
    std::size_t stage = waiting.size();
    for (std::size_t s = 0; s < waiting.size(); ++s) {
      if (waiting[s].empty()) continue;
      const double start = std::max(stage_free[s], waiting[s].front().ready);
      if (start < soonest) soonest = start, stage = s;
    }
    if (stage == waiting.size()) return done;
    Reduction& next = done.emplace_back(waiting[stage].front());
    waiting[stage].pop_front();
    network_free = std::max(network_free, soonest) + costs.all_reduce.transfer(next.bytes * costs.sent_share);
    next.stage = static_cast<int>(stage);
    next.end = stage_free[stage] = network_free + costs.all_reduce.latency_s;
  }
}

}  // namespace sluice::tune
