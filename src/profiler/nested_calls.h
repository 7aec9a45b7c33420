// nested_calls: splits nested calls of one thread into what each did itself: self time without inner calls and the
// observer, operations and bytes counted once. Operations belong to the innermost call that has any, so that a
// convolution, which calls another one, is counted once; a tensor's bytes to the innermost call that touches it, and to
// the one that has operations. Units: nanoseconds, bytes. Threads: one.
// Errors: none. Requires: each enter() has its end_call() and end_watch(), the last one first.
#pragma once

#include <cstdint>
#include <vector>

#include "core/clock.h"

namespace sluice::profiler {

// Of a tensor: two with the same beginning are taken for one, as large as the larger one.
struct Touched {
  const void* begin;
  std::uint64_t bytes;
};

// Of a whole call, those within it included.
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
  // called: the observer was entered; begins: the operator itself.
  void enter(Nanoseconds called, Nanoseconds begins);
  // The operator ended.
  [[nodiscard]] SelfCost end_call(Nanoseconds ended, CallCost whole);
  // The observer returned.
  void end_watch(Nanoseconds done);

 private:
  struct Open {
    Nanoseconds called, begins;
    Nanoseconds within = 0;        // of calls in it, and of watching them
    bool has_flops = false;        // calls in it have
    std::vector<Touched> touched;  // by calls in it
  };
  std::vector<Open> open_;
  Nanoseconds last_called_ = 0;
};

}  // namespace sluice::profiler
