// roofline: what bounds an operator (Williams et al. 2009): the peak with the larger reached share, if that is at least
// kBoundShare; else neither. Pure. Units: seconds, operations, bytes.
#pragma once

#include <cstdint>

namespace sluice::profiler {

struct MachinePeaks {
  double flops_per_s = 0;
  double bytes_per_s = 0;
  bool is_of_cache = false;  // bytes_per_s is that of the cache, because larger tensors did not fit in memory
};

enum class Bound : std::uint8_t { kCompute, kMemory, kNeither };
[[nodiscard]] const char* name_of(Bound bound);

inline constexpr double kBoundShare = 1.0 / 3;

struct Roofline {
  double flops_per_s = 0;
  double bytes_per_s = 0;
  double of_flops = 0;  // share of the peak; above 1 if a kernel saves operations
  double of_bytes = 0;  // share of the peak; above 1 if tensors are in the caches
  Bound bound = Bound::kNeither;
};

[[nodiscard]] Roofline roofline_of(double flops, double bytes, double seconds, const MachinePeaks& peaks);

}  // namespace sluice::profiler
