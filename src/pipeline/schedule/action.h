// action: what a pipeline schedule is made of. A schedule is data: generators make it, validate() proves it, the
// executor walks it, draw() prints it; none of them keeps an order of its own.
// Not here: when an action runs. A schedule orders the actions of one device; across devices only results order them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"

namespace sluice::pipeline {

enum class Op : std::uint8_t {
  kForward,   // F
  kBackward,  // B: input and weight gradient together
};

struct Action {
  Op op = Op::kForward;
  StageId stage{};
  MicroBatchId micro_batch{};

  auto operator<=>(const Action&) const = default;
};

// One step of one replica. A device may own several stages (virtual stages); a stage has one owner.
struct Schedule {
  std::string name;  // one word
  int stages = 0;
  int micro_batches = 0;
  std::vector<std::vector<Action>> devices;  // [device][position], in the order in which the device runs them

  bool operator==(const Schedule&) const = default;
};

// What crosses from one stage to another. Each (source device, target device, payload) is one first-in first-out queue.
enum class Payload : std::uint8_t { kActivation, kGradient };

[[nodiscard]] char letter(Op op);
[[nodiscard]] std::string_view word(Payload payload);
[[nodiscard]] Payload payload_of(Op op);

// "2F0": stage 2, forward, micro-batch 0; the notation of torch.distributed.pipelining.
[[nodiscard]] std::string to_text(const Action& action);

// The action of the neighbouring stage whose result this one receives; empty at the two ends of the pipeline.
[[nodiscard]] std::optional<Action> received_from(const Action& action, int stages);

// Every action whose result this one reads: that of the neighbour, and for a backward also its own forward.
[[nodiscard]] std::vector<Action> inputs_of(const Action& action, int stages);

}  // namespace sluice::pipeline
