// memory_trace: when each action takes and frees memory on its device, for the peaks of many sizes of stages.
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

  // The most bytes that a device holds at any time: what its stages keep, and the working memory of the running action.
  //   - I turns a stage's activation into its stash: while it runs, the larger of the two counts.
  //   - A schedule without backward keeps one activation at a time.
  //   - A tensor that a neighbour reads counts until the neighbour has surely finished. The result is an upper bound.
  // Requires: one entry per stage; the first stage lends no input gradient, the last one no output.
  [[nodiscard]] std::int64_t peak_bytes(int device, std::span<const StageBytes> stages) const;

 private:
  enum class Change : std::uint8_t {
    kForward,
    kBackward,
    kInputGradient,
    kWeightGradient,
    // The neighbour has finished with a lent tensor.
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
  int count_;
  std::vector<std::vector<int>> stages_;    // [device]
  std::vector<std::vector<Event>> events_;  // [device]
};

}  // namespace sluice::pipeline
