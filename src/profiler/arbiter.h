// arbiter: lets one profiler of this process claim CUPTI, which supports one client and would silently give its
// callbacks to a second one. CUPTI detects external clients (cupti/session.h). Threads: any.
#pragma once

#include <cstdint>
#include <utility>

namespace sluice::profiler {

enum class GpuProfiler : std::uint8_t {
  kOff,
  kEvents,  // CUDA events: independent of CUPTI
  kTorch,   // LibTorch's own profiler
  kCupti,
};

[[nodiscard]] const char* to_string(GpuProfiler profiler);

// Holds CUPTI for its lifetime; invalid if another profiler holds it.
class CuptiClaim {
 public:
  explicit CuptiClaim(GpuProfiler who);
  CuptiClaim(CuptiClaim&& other) noexcept : is_valid_(std::exchange(other.is_valid_, false)), holder_(other.holder_) {}
  CuptiClaim& operator=(CuptiClaim&&) = delete;
  ~CuptiClaim();

  [[nodiscard]] bool is_valid() const { return is_valid_; }
  [[nodiscard]] GpuProfiler holder() const { return holder_; }

 private:
  bool is_valid_;
  GpuProfiler holder_;
};

[[nodiscard]] GpuProfiler holder_of_cupti();

}  // namespace sluice::profiler
