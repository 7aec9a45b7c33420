// link_cost: what it costs to pass bytes on, as measured: from a stage to the next, or in a sum over replicas.
// Not here: measuring (measure/measure_links.h), the fit (profiler/affine_fit.h), the file
// (profiler/layer_profile.h). Units: seconds, bytes. Threads: values.
#pragma once

#include <optional>

namespace sluice {

// latency + bytes / bandwidth.
struct LinkCost {
  double latency_s = 0;
  std::optional<double> bytes_per_s;  // nothing: the time does not depend on the bytes, they are not copied
  double error = 0;                   // of the fit, as AffineCost::error

  [[nodiscard]] double at(double bytes) const { return latency_s + transfer(bytes); }
  [[nodiscard]] double transfer(double bytes) const { return bytes_per_s ? bytes / *bytes_per_s : 0.0; }
};

}  // namespace sluice
