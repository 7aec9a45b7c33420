// arbiter: CUPTI has one client in a process. Who of us profiles the GPU says so here before it touches CUPTI, so that
// no other one takes its callbacks away without a word. Not here: clients from outside (Nsight, a sanitizer), which
// CUPTI itself names (cupti/session.h). Threads: any.
#pragma once

#include <cstdint>
#include <utility>

namespace sluice::profiler {

enum class GpuProfiler : std::uint8_t {
  kOff,
  kEvents,  // CUDA events: needs no CUPTI, and goes with any other one
  kTorch,   // LibTorch's own profiler
  kCupti,   // profiler/cupti
};

[[nodiscard]] const char* to_string(GpuProfiler profiler);

// CUPTI, for as long as it lives; not valid where another one has it.
class CuptiClaim {
 public:
  // Requires: kTorch or kCupti.
  explicit CuptiClaim(GpuProfiler who);
  CuptiClaim(CuptiClaim&& other) noexcept : is_valid_(std::exchange(other.is_valid_, false)), holder_(other.holder_) {}
  CuptiClaim& operator=(CuptiClaim&&) = delete;
  ~CuptiClaim();

  [[nodiscard]] bool is_valid() const { return is_valid_; }
  [[nodiscard]] GpuProfiler holder() const { return holder_; }  // when it was asked for

 private:
  bool is_valid_;
  GpuProfiler holder_;
};

// kOff where CUPTI is free.
[[nodiscard]] GpuProfiler holder_of_cupti();

}  // namespace sluice::profiler
