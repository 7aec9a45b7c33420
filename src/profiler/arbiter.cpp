#include "profiler/arbiter.h"

#include <atomic>

#include "core/check.h"

namespace sluice::profiler {
namespace {

std::atomic<GpuProfiler> now_holds = GpuProfiler::kOff;

}  // namespace

const char* to_string(GpuProfiler profiler) {
  switch (profiler) {
    case GpuProfiler::kOff: return "off";
    case GpuProfiler::kEvents: return "CUDA events";
    case GpuProfiler::kTorch: return "LibTorch's profiler";
    case GpuProfiler::kCupti: return "Sluice's CUPTI session";
  }
  return "";
}

CuptiClaim::CuptiClaim(GpuProfiler who) : is_valid_(false), holder_(GpuProfiler::kOff) {
  check(who == GpuProfiler::kTorch || who == GpuProfiler::kCupti, "a profiler that uses CUPTI");
  is_valid_ = now_holds.compare_exchange_strong(holder_, who);
  if (is_valid_) holder_ = who;
}

CuptiClaim::~CuptiClaim() {
  if (is_valid_) now_holds = GpuProfiler::kOff;
}

GpuProfiler holder_of_cupti() { return now_holds; }

}  // namespace sluice::profiler
