// roofline: what bounds an operator (Williams et al. 2009): how near it comes to the machine's peaks, of products and
// of memory, which are measured. The peak of which it reaches the larger share bounds it, if that share is at least
// kBoundShare; else neither does: launching, waiting, work that is not counted, too little of it. Pure.
// Units: seconds, operations, bytes.
#pragma once

#include <cstdint>

namespace sluice::profiler {

struct MachinePeaks {
  double flops_per_s = 0;    // of a large matrix product
  double bytes_per_s = 0;    // of tensors larger than the caches
  bool is_of_cache = false;  // bytes_per_s, because memory had no room for such tensors
};

enum class Bound : std::uint8_t { kCompute, kMemory, kNeither };
[[nodiscard]] const char* name_of(Bound bound);

inline constexpr double kBoundShare = 1.0 / 3;

struct Roofline {
  double flops_per_s = 0;
  double bytes_per_s = 0;
  double of_flops = 0;  // share of the peak; above 1: a kernel that saves operations
  double of_bytes = 0;  // above 1: tensors that lie in the caches
  Bound bound = Bound::kNeither;
};

[[nodiscard]] Roofline roofline_of(double flops, double bytes, double seconds, const MachinePeaks& peaks);

}  // namespace sluice::profiler
