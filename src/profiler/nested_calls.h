// nested_calls: splits nested calls of one thread into their own costs. Operations count for the innermost call that
// has any; a tensor's bytes also for the innermost call that touches it. Units: nanoseconds, bytes. Threads: one.
// Requires: each enter() has its end_call() and end_watch(), in reverse order.
#pragma once

#include <cstdint>
#include <vector>

#include "core/clock.h"

namespace sluice::profiler {

// Memory of a tensor. Entries with the same address count once, with the larger size.
struct Touched {
  const void* begin;
  std::uint64_t bytes;
};

struct CallCost {
  double flops = 0;
  std::vector<Touched> touched;
};

struct SelfCost {
  Nanoseconds self = 0;
  double flops = 0;
  std::uint64_t bytes = 0;
};

class NestedCalls {
 public:
  // called: when the observer was entered; begins: when the operator itself began.
  void enter(Nanoseconds called, Nanoseconds begins);
  [[nodiscard]] SelfCost end_call(Nanoseconds ended, CallCost whole);
  void end_watch(Nanoseconds done);

 private:
  struct Open {
    Nanoseconds called, begins;
    Nanoseconds within = 0;  // time of inner calls and of observing them
    bool has_flops = false;
    std::vector<Touched> touched;
  };
  std::vector<Open> open_;
  Nanoseconds last_called_ = 0;
};

}  // namespace sluice::profiler
