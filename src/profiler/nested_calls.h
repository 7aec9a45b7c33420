// nested_calls: of the calls of one thread, which lie within each other, what each did itself: its time without that of
// the calls within it and of whoever watches, and what those calls are not counted for already. Operations belong to
// the innermost call that has any, so that a convolution, which calls another one, is counted once; a tensor's bytes to
// the innermost call that touches it, and to the one that has operations. Units: nanoseconds, bytes. Threads: one.
// Errors: none. Requires: each enter() has its leave() and left(), the last one first.
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

struct OwnCost {
  Nanoseconds self = 0;
  double flops = 0;
  std::uint64_t bytes = 0;
};

class NestedCalls {
 public:
  // The watcher was called; the call itself begins.
  void enter(Nanoseconds called, Nanoseconds begins);
  // It has ended.
  [[nodiscard]] OwnCost leave(Nanoseconds ended, CallCost whole);
  // The watcher is done with it.
  void left(Nanoseconds done);

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
