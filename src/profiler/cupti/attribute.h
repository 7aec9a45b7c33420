// attribute: whose work each record is, and with that the spans of a step as the GPU ran them.
// Work on a slot's own stream belongs to the innermost action of the slot whose host interval contains its launch.
// Work on any other stream (NCCL's; those for copies and for sums over replicas) belongs to the action that its launch
// is tagged with, beside what the slot's own stream does. On a slot's own stream the tag is the cross-check. What
// lies between the kernels of an action is nobody's: it counts as other in the breakdown, where events would count it
// as the action's. Not here: reading CUPTI (session.h). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/recorder.h"
#include "profiler/cupti/records.h"

namespace sluice::cupti {

struct Counts {
  std::uint64_t work = 0;            // records of device work, the next five included
  std::uint64_t without_times = 0;   // the breakdown lacks them
  std::uint64_t without_launch = 0;  // on a slot's stream, and no record of their launch: the breakdown lacks them
  std::uint64_t late = 0;            // of a step before, whose breakdown lacks them
  std::uint64_t outside = 0;         // launched outside of any action
  std::uint64_t elsewhere = 0;       // on streams of no slot, and not tagged
  std::uint64_t disagreements = 0;   // the tag says another action than the intervals, which count
  std::uint64_t dropped = 0;         // by CUPTI: the breakdown lacks them
  std::uint64_t unknown = 0;
  Nanoseconds overhead = 0;  // of the measurement
  Nanoseconds waits = 0;     // of calls that synchronise

  void add(const Counts& other);
};

// Calls and time of one kernel in one layer's part of a phase.
struct KernelKey {
  Phase phase;
  int layer;  // kNoLayer: not known
  int name;

  auto operator<=>(const KernelKey&) const = default;
};
struct KernelTime {
  std::uint64_t calls = 0;
  Nanoseconds time = 0;
};
using KernelTable = std::map<KernelKey, KernelTime>;

// Records of work launched (without a record of its launch: begun) before `end`: too late for the step that ended then
// and whose records were collected.
[[nodiscard]] std::uint64_t count_late(const Records& records, Nanoseconds end);

struct Attribution {
  StepSpans spans;  // for profiler::break_down(); `dropped` counts what the records lack
  KernelTable kernels;
  Counts counts;
};

// Requires: what ran before the step has been collected, so records of it are late.
// streams: of each slot of `host`; device -1: it is no GPU, and its spans stay as they are.
[[nodiscard]] Attribution attribute(StepSpans host, const std::vector<StreamKey>& streams, const Records& records);

}  // namespace sluice::cupti
