// operator_sums: sums of the operators of a model's layers. Units: nanoseconds, operations, bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "core/clock.h"

namespace sluice::profiler {

enum class Pass : std::uint8_t { kForward, kBackward };  // weight gradients are backward

struct OperatorKey {
  int layer;
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
