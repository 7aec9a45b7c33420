// memory_trace: what the actions of a schedule take and free on each device, in order, for many sizes of its stages.
// Not here: what a stage's bytes are (memory.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/schedule/memory.h"

namespace sluice::pipeline {

class MemoryTrace {
 public:
  // Requires: a validated schedule.
  explicit MemoryTrace(const Schedule& schedule);

  // The most bytes of a device at any time: the sum over its stages, and what the running action takes. While I runs,
  // the larger of activation and stash is held at least, for one becomes the other. An evaluation keeps one activation.
  // What is lent counts until the other device is sure to have given it back: an upper bound for any times of actions.
  // Requires: one entry per stage; those of other devices' stages do not count. The ends of the pipeline lend nothing
  // outwards.
  [[nodiscard]] std::int64_t peak_bytes(int device, std::span<const StageBytes> stages) const;

 private:
  enum class Change : std::uint8_t {
    kForward,
    kBackward,
    kInputGradient,
    kWeightGradient,
    // What was lent is back: see Lent.
    kOutputOfGradient,
    kOutputOfLast,
    kGradientOfGradient,
    kGradientOfLast,
  };
  struct Event {
    Change change;
    int stage;
  };
  class Loans;
  class Held;

  [[nodiscard]] static std::vector<Event> events_of(const std::vector<Action>& actions, Loans loans);

  bool trains_;
  int count_;                               // of stages
  std::vector<std::vector<int>> stages_;    // [device]
  std::vector<std::vector<Event>> events_;  // [device]
};

}  // namespace sluice::pipeline
