#include "profiler/roofline.h"

#include <algorithm>

namespace sluice::profiler {

const char* name_of(Bound bound) {
  switch (bound) {
    case Bound::kCompute: return "compute";
    case Bound::kMemory: return "memory";
    case Bound::kNeither: return "neither";
  }
  return "";
}

Roofline roofline_of(double flops, double bytes, double seconds, const MachinePeaks& peaks) {
  const auto quotient = [](double a, double b) { return b > 0 ? a / b : 0.0; };
  Roofline line{.flops_per_s = quotient(flops, seconds), .bytes_per_s = quotient(bytes, seconds)};
  line.of_flops = quotient(line.flops_per_s, peaks.flops_per_s);
  line.of_bytes = quotient(line.bytes_per_s, peaks.bytes_per_s);
  if (std::max(line.of_flops, line.of_bytes) < kBoundShare) return line;
  line.bound = line.of_flops >= line.of_bytes ? Bound::kCompute : Bound::kMemory;
  return line;
}

}  // namespace sluice::profiler
