// nested_calls: splits nested calls of one thread into their own costs: time without inner calls and the observer,
// operations and bytes. Operations count for the innermost call that has any, so that a nested convolution is counted
// once. A tensor's bytes count for the innermost call that touches it, and for the call that has operations. Units:
// nanoseconds, bytes. Threads: one. Errors: none. Requires: each enter() has its end_call() and end_watch(), in reverse
// order.
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
