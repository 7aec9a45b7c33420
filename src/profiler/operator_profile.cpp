#include "profiler/operator_profile.h"

#include <algorithm>
#include <array>
#include <functional>

namespace sluice::profiler {
namespace {

using Json = nlohmann::ordered_json;

Json operator_json(const OperatorMean& one, double share_of, const MachinePeaks& peaks) {
  const Roofline line = roofline_of(one.flops, one.bytes, one.self_s, peaks);
  return {{"name", one.name},
          {"calls", one.calls},
          {"self_s", one.self_s},
          {"share", share_of > 0 ? one.self_s / share_of : 0.0},
          {"flops", one.flops},
          {"bytes", one.bytes},
          {"flops_per_s", line.flops_per_s},
          {"bytes_per_s", line.bytes_per_s},
          {"of_peak_flops", line.of_flops},
          {"of_peak_bytes", line.of_bytes},
          {"bound", name_of(line.bound)}};
}

Json pass_json(const PassOperators& pass, const MachinePeaks& peaks) {
  Json operators = Json::array();
  for (const OperatorMean& one : pass.operators) operators.push_back(operator_json(one, pass.watched_s, peaks));
  return {{"seconds", pass.seconds},
          {"watched_s", pass.watched_s},
          {"operators_s", pass.operators_s()},
          {"bound", name_of(bound_of(pass, peaks))},
          {"operators", operators}};
}

}  // namespace

double PassOperators::operators_s() const {
  double sum = 0;
  for (const OperatorMean& one : operators) sum += one.self_s;
  return sum;
}

Bound bound_of(const PassOperators& pass, const MachinePeaks& peaks) {
  std::array<double, 3> seconds{};
  for (const OperatorMean& one : pass.operators)
    seconds[static_cast<std::size_t>(roofline_of(one.flops, one.bytes, one.self_s, peaks).bound)] += one.self_s;
  seconds[static_cast<std::size_t>(Bound::kNeither)] += std::max(pass.watched_s - pass.operators_s(), 0.0);
  return static_cast<Bound>(std::ranges::max_element(seconds) - seconds.begin());
}

std::vector<OperatorMean> means_of(const OperatorSums& sums, int layer, Pass pass, double divisor) {
  std::vector<OperatorMean> means;
  for (const auto& [key, sum] : sums) {
    if (key.layer != layer || key.pass != pass) continue;
    means.push_back({key.name, static_cast<double>(sum.calls) / divisor, to_s(sum.self) / divisor, sum.flops / divisor,
                     sum.bytes / divisor});
  }
  std::ranges::stable_sort(means, std::greater<>(), &OperatorMean::self_s);
  return means;
}

nlohmann::ordered_json to_json(const OperatorProfile& profile) {
  Json layers = Json::array();
  for (const LayerOperators& one : profile.layers) {
    layers.push_back({{"name", one.layer},
                      {"forward", pass_json(one.forward, profile.peaks)},
                      {"backward", pass_json(one.backward, profile.peaks)}});
  }
  return {{"micro_batch", profile.micro_batch},
          {"passes", profile.passes},
          {"peak_flops_per_s", profile.peaks.flops_per_s},
          {"peak_bytes_per_s", profile.peaks.bytes_per_s},
          {"peak_of_cache", profile.peaks.is_of_cache},
          {"layers", layers}};
}

}  // namespace sluice::profiler
