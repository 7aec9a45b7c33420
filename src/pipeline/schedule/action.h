// action: the data type of pipeline schedules. A schedule orders the actions of each device; across devices, only the
// results that actions wait for order them.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"

namespace sluice::pipeline {

enum class Op : std::uint8_t {
  kForward,         // F
  kBackward,        // B: input and weight gradient
  kInputGradient,   // I: the part that the previous stage waits for
  kWeightGradient,  // W: the part that only the optimizer waits for
  kReduceGradient,  // REDUCE_GRAD: the stage's gradients are complete; replicas may sum them
};

struct Action {
  Op op = Op::kForward;
  StageId stage{};
  MicroBatchId micro_batch{};  // 0 for kReduceGradient, which covers all of them
  // Runs at the same time as the device's next action. The pair starts when both have their inputs and ends together.
  bool overlaps_next = false;

  auto operator<=>(const Action&) const = default;
};

// One step of one replica. A device may own several stages (virtual stages); a stage has one owner.
struct Schedule {
  std::string name;  // one word
  int stages = 0;    // over all devices
  int micro_batches = 0;
  std::vector<std::vector<Action>> devices;  // [device][position], in execution order

  bool operator==(const Schedule&) const = default;
};

// What crosses between stages. Each (source device, target device, payload) is one first-in first-out queue.
enum class Payload : std::uint8_t { kActivation, kGradient };

[[nodiscard]] std::string_view letter(Op op);  // "F", "B", "I", "W", "REDUCE_GRAD"
[[nodiscard]] std::string_view word(Payload payload);

[[nodiscard]] bool makes_input_gradient(Op op);

// "2F0": stage 2, forward, micro-batch 0; the notation of torch.distributed.pipelining. Does not show pairs.
[[nodiscard]] std::string to_text(const Action& action);

// A unit is one action or one overlapped pair. Returns the position after the unit that begins at `begin`.
[[nodiscard]] std::size_t unit_end(const std::vector<Action>& actions, std::size_t begin);
// "0F3", or "(0F3;3B1)".
[[nodiscard]] std::string unit_text(const std::vector<Action>& actions, std::size_t begin);

}  // namespace sluice::pipeline
