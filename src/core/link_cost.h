// link_cost: measured cost of moving bytes between stages or in an all-reduce. Units: seconds, bytes.
#pragma once

#include <optional>

namespace sluice {

struct LinkCost {
  double latency_s = 0;
  std::optional<double> bytes_per_s;  // nullopt: the bytes are not copied, so only the latency counts
  double error = 0;

  [[nodiscard]] double at(double bytes) const { return latency_s + transfer(bytes); }
  [[nodiscard]] double transfer(double bytes) const { return bytes_per_s ? bytes / *bytes_per_s : 0.0; }
};

}  // namespace sluice
