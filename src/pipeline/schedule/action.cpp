#include "pipeline/schedule/action.h"

#include "core/check.h"

namespace sluice::pipeline {

std::string_view letter(Op op) {
  switch (op) {
    case Op::kForward: return "F";
    case Op::kBackward: return "B";
    case Op::kInputGradient: return "I";
    case Op::kWeightGradient: return "W";
    case Op::kReduceGradient: return "REDUCE_GRAD";
  }
  check(false, "a known operation in a schedule");
  return "?";
}

std::string_view word(Payload payload) { return payload == Payload::kActivation ? "activation" : "gradient"; }

bool makes_input_gradient(Op op) { return op == Op::kBackward || op == Op::kInputGradient; }

std::string to_text(const Action& action) {
  std::string text = std::to_string(index(action.stage));
  text += letter(action.op);
  if (action.op != Op::kReduceGradient) text += std::to_string(index(action.micro_batch));
  return text;
}

std::size_t unit_end(const std::vector<Action>& actions, std::size_t begin) {
  return begin + (actions[begin].overlaps_next && begin + 1 < actions.size() ? 2 : 1);
}

std::string unit_text(const std::vector<Action>& actions, std::size_t begin) {
  if (unit_end(actions, begin) == begin + 1) return to_text(actions[begin]);
  std::string pair(1, '(');
  pair.append(to_text(actions[begin])).append(1, ';').append(to_text(actions[begin + 1])).append(1, ')');
  return pair;
}

}  // namespace sluice::pipeline
