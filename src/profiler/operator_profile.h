// operator_profile: which operators the layers of a model spend their time in, and how near each comes to the machine's
// peaks; means of one micro-batch. A value, and its JSON (docs/reference/profile_file.md). Not here: measuring
// (measure/measure_operators.h). Units: seconds, operations, bytes.
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

// Of a layer.
struct PassOperators {
  double seconds = 0;                   // while nobody watches
  double watched_s = 0;                 // in the passes whose operators these are
  std::vector<OperatorMean> operators;  // the slowest first

  [[nodiscard]] double operators_s() const;  // their sum
};

struct LayerOperators {
  std::string layer;
  PassOperators forward, backward;
};

struct OperatorProfile {
  std::int64_t micro_batch = 0;  // samples
  int passes = 0;                // that the means are of
  MachinePeaks peaks;
  std::vector<LayerOperators> layers;
};

// What bounds most of the time of a pass, by its operators; time that no operator takes counts as bound by neither.
[[nodiscard]] Bound bound_of(const PassOperators& pass, const MachinePeaks& peaks);

// Of the sums of one layer and pass; the slowest first. divisor: micro-batches that they are of.
[[nodiscard]] std::vector<OperatorMean> means_of(const OperatorSums& sums, int layer, Pass pass, double divisor);

[[nodiscard]] nlohmann::ordered_json to_json(const OperatorProfile& profile);

}  // namespace sluice::profiler
