// operator_sums: what the operators of a model's layers did, as values: calls, self time, operations, bytes. Not here:
// how they are seen (operators/operator_watch.h), what bounds them (roofline.h). Units: nanoseconds, operations, bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "core/clock.h"

namespace sluice::profiler {

enum class Pass : std::uint8_t { kForward, kBackward };  // weight gradients are backward

struct OperatorKey {
  int layer;  // kNoLayer: not known
  Pass pass;
  std::string name;

  auto operator<=>(const OperatorKey&) const = default;
};

struct OperatorSum {
  std::uint64_t calls = 0;
  Nanoseconds self = 0;
  double flops = 0;
  double bytes = 0;

  OperatorSum& operator+=(const OperatorSum& other) {
    calls += other.calls;
    self += other.self;
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

using OperatorSums = std::map<OperatorKey, OperatorSum>;

}  // namespace sluice::profiler
