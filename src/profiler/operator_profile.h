// operator_profile: time of each operator in a model's layers and its distance from the machine's peaks, per
// micro-batch (docs/reference/profile_file.md). Units: seconds, operations, bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiler/operator_sums.h"
#include "profiler/roofline.h"

namespace sluice::profiler {

struct OperatorMean {
  std::string name;
  double calls = 0;
  double self_s = 0;
  double flops = 0;
  double bytes = 0;
};

struct PassOperators {
  double seconds = 0;    // without an observer
  double watched_s = 0;  // in the observed passes
  std::vector<OperatorMean> operators;

  [[nodiscard]] double operators_s() const;
};

struct LayerOperators {
  std::string layer;
  PassOperators forward, backward;
};

struct OperatorProfile {
  std::int64_t micro_batch = 0;
  int passes = 0;
  MachinePeaks peaks;
  std::vector<LayerOperators> layers;
};

// What bounds most of a pass's time, by its operators. Time outside of operators counts as bound by neither.
[[nodiscard]] Bound bound_of(const PassOperators& pass, const MachinePeaks& peaks);

// Means for one layer and pass, slowest first. divisor: number of micro-batches in `sums`.
[[nodiscard]] std::vector<OperatorMean> means_of(const OperatorSums& sums, int layer, Pass pass, double divisor);

[[nodiscard]] nlohmann::ordered_json to_json(const OperatorProfile& profile);

}  // namespace sluice::profiler
