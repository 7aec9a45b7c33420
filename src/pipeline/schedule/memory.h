// memory: the bytes that a schedule makes each device hold.
// Not here: what a stage's bytes are; they are measured (core/layer_cost.h) or computed by the caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Of one stage, in bytes.
struct StageBytes {
  std::int64_t fixed = 0;       // for the whole step: weights, gradients, optimizer state, buffers of its edges
  std::int64_t activation = 0;  // per micro-batch, from F until B or I is over
  std::int64_t stash = 0;       // per micro-batch, from I until W is over: what the weight gradient still needs
  // Per micro-batch, what another stage is lent instead of a copy: the output, from F until B or I is over and the next
  // stage's B or W as well; the input gradient, from B or I until the B or I of the stage before is over. Nothing of
  // the last stage, and of the first one.
  std::int64_t lent_output = 0;
  std::int64_t lent_gradient = 0;
  // What an action takes at its worst moment besides what is held when it begins; of F and I the activation and the
  // stash are part of it.
  std::int64_t forward_working = 0;
  std::int64_t backward_working = 0;
  std::int64_t input_working = 0;
  std::int64_t weight_working = 0;
};

// What the actions of a schedule take and free, for many sizes of its stages. Requires: a validated schedule.
class MemoryTrace {
 public:
  explicit MemoryTrace(const Schedule& schedule);

  // The most bytes of a device at any time: the sum over its stages, and what the running action takes. While I runs,
  // the larger of activation and stash is held at least, for one becomes the other. An evaluation keeps one activation.
  // What is lent counts until the other device is sure to have given it back, whatever the times of actions.
  // Requires: one entry per stage; those of other devices' stages do not count.
  [[nodiscard]] std::int64_t peak_bytes(int device, std::span<const StageBytes> stages) const;

 private:
  enum class Change : std::uint8_t { kForward, kBackward, kInputGradient, kWeightGradient, kOutputBack, kGradientBack };
  struct Event {
    Change change;
    int stage;
  };
  class Held;
  class Loans;
  [[nodiscard]] static Change change_of(Op op);

  bool trains_;
  std::vector<std::vector<int>> stages_;    // [device]
  std::vector<std::vector<Event>> events_;  // [device]
};

// Per device. Requires: a validated schedule; one entry per stage.
[[nodiscard]] std::vector<std::int64_t> peak_bytes(const Schedule& schedule, std::span<const StageBytes> stages);

// Throws ConfigError naming the first device that needs more than its budget. budgets: [device], in bytes.
void require_bytes(const Schedule& schedule, std::span<const StageBytes> stages, std::span<const std::int64_t> budgets);

// Bytes of stages from those of devices: `devices[d]` is of all stages of device d together, in equal shares; what is
// left of a division goes to its first stage. Requires: a validated schedule; one entry per device.
[[nodiscard]] std::vector<StageBytes> share_bytes(const Schedule& schedule, std::span<const StageBytes> devices);

}  // namespace sluice::pipeline
