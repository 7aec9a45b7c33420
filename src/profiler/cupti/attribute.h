// attribute: assigns CUPTI's records to actions and builds a step's spans from GPU times. Pure. Work on a slot's own
// stream belongs to the innermost action whose host interval contains the launch. Work on other streams (NCCL, copies,
// sums over replicas) belongs to the tagged action. Gaps between an action's kernels count as "other" in the breakdown.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/recorder.h"
#include "profiler/cupti/records.h"

namespace sluice::cupti {

struct Counts {
  std::uint64_t work = 0;            // device work, including the next five counts
  std::uint64_t without_times = 0;   // missing from the breakdown
  std::uint64_t without_launch = 0;  // on a slot's stream without a launch record; missing from the breakdown
  std::uint64_t late = 0;            // from an earlier step; missing from that step's breakdown
  std::uint64_t outside = 0;         // launched outside of any action
  std::uint64_t elsewhere = 0;       // untagged work on streams of no slot
  std::uint64_t disagreements = 0;   // tag and intervals name different actions; intervals count
  std::uint64_t dropped = 0;         // by CUPTI; missing from the breakdown
  std::uint64_t unknown = 0;
  Nanoseconds overhead = 0;
  Nanoseconds waits = 0;

  void add(const Counts& other);
};

struct KernelKey {
  Phase phase;
  int layer;
  int name;

  auto operator<=>(const KernelKey&) const = default;
};
struct KernelTime {
  std::uint64_t calls = 0;
  Nanoseconds time = 0;
};
using KernelTable = std::map<KernelKey, KernelTime>;

// Records launched before `end` (or begun, if the launch is unrecorded), too late for the step that ended then.
[[nodiscard]] std::uint64_t count_late(const Records& records, Nanoseconds end);

struct Attribution {
  StepSpans spans;  // for profiler::break_down(); `dropped` counts missing records
  KernelTable kernels;
  Counts counts;
};

// Requires: no records of earlier work remain. streams: [slot of `host`]; device -1: not a GPU.
[[nodiscard]] Attribution attribute(StepSpans host, const std::vector<StreamKey>& streams, const Records& records);

}  // namespace sluice::cupti
