#include "pipeline/schedule/action.h"

#include "core/check.h"
#include "core/concat.h"

namespace sluice::pipeline {
namespace {

StageId shifted(StageId stage, int by) { return static_cast<StageId>(index(stage) + by); }

}  // namespace

char letter(Op op) {
  switch (op) {
    case Op::kForward: return 'F';
    case Op::kBackward: return 'B';
  }
  check(false, "unknown operation in a schedule");
  return '?';
}

std::string_view word(Payload payload) { return payload == Payload::kActivation ? "activation" : "gradient"; }

Payload payload_of(Op op) {
  switch (op) {
    case Op::kForward: return Payload::kActivation;
    case Op::kBackward: return Payload::kGradient;
  }
  check(false, "unknown operation in a schedule");
  return Payload::kActivation;
}

std::string to_text(const Action& action) {
  return concat(index(action.stage), letter(action.op), index(action.micro_batch));
}

std::optional<Action> received_from(const Action& action, int stages) {
  switch (action.op) {
    case Op::kForward:
      if (index(action.stage) == 0) return std::nullopt;
      return Action{Op::kForward, shifted(action.stage, -1), action.micro_batch};
    case Op::kBackward:
      if (index(action.stage) == stages - 1) return std::nullopt;
      return Action{Op::kBackward, shifted(action.stage, 1), action.micro_batch};
  }
  check(false, "unknown operation in a schedule");
  return std::nullopt;
}

std::vector<Action> inputs_of(const Action& action, int stages) {
  std::vector<Action> inputs;
  if (const auto neighbour = received_from(action, stages)) inputs.push_back(*neighbour);
  if (action.op == Op::kBackward) inputs.push_back({Op::kForward, action.stage, action.micro_batch});
  return inputs;
}

}  // namespace sluice::pipeline
