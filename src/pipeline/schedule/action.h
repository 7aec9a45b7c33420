// action: what a pipeline schedule is made of. A schedule is data: generators make it, validate() proves it, simulate()
// costs it, the executor walks it, draw() prints it; none of them keeps an order of its own.
// Not here: when an action runs. A schedule orders the actions of one device; across devices only results order them.
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
  kBackward,        // B: input and weight gradient together
  kInputGradient,   // I: the part of a backward that the stage before waits for
  kWeightGradient,  // W: the part that only the optimizer waits for
  kReduceGradient,  // REDUCE_GRAD: the stage's gradients are complete and may be summed over replicas
};

struct Action {
  Op op = Op::kForward;
  StageId stage{};
  MicroBatchId micro_batch{};  // 0 for kReduceGradient, which is for all of them
  // This action and the next one of the device run at the same time, so that the computation of one hides the
  // communication of the other. The pair starts when both have their inputs; both results are there at its end.
  bool overlaps_next = false;

  auto operator<=>(const Action&) const = default;
};

// One step of one replica. A device may own several stages (virtual stages); a stage has one owner.
struct Schedule {
  std::string name;  // one word
  int stages = 0;    // of all devices together
  int micro_batches = 0;
  std::vector<std::vector<Action>> devices;  // [device][position], in the order in which the device runs them

  bool operator==(const Schedule&) const = default;
};

// What crosses from one stage to another. Each (source device, target device, payload) is one first-in first-out queue.
enum class Payload : std::uint8_t { kActivation, kGradient };

[[nodiscard]] std::string_view letter(Op op);  // "F", "B", "I", "W", "REDUCE_GRAD"
[[nodiscard]] std::string_view word(Payload payload);

// B or I: the actions that pass a gradient to the stage before.
[[nodiscard]] bool makes_input_gradient(Op op);

// "2F0": stage 2, forward, micro-batch 0; the notation of torch.distributed.pipelining. The pair is not in it.
[[nodiscard]] std::string to_text(const Action& action);

// A unit is what a device runs at once: one action, or a pair. The position after the unit that begins at `begin`.
[[nodiscard]] std::size_t unit_end(const std::vector<Action>& actions, std::size_t begin);
// "0F3", or "(0F3;3B1)".
[[nodiscard]] std::string unit_text(const std::vector<Action>& actions, std::size_t begin);

}  // namespace sluice::pipeline
