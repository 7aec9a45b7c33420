#include "pipeline/schedule/action_index.h"

#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {
namespace {

StageId shifted(StageId stage, int by) { return static_cast<StageId>(index(stage) + by); }

}  // namespace

ActionIndex::ActionIndex(const Schedule& schedule)
    : schedule_(schedule),
      entries_(static_cast<std::size_t>(schedule.stages) * static_cast<std::size_t>(schedule.micro_batches)),
      owners_(stage_owners(schedule)) {
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const auto& actions = schedule.devices[device];
    for (std::size_t position = 0; position < actions.size(); ++position) {
      const Action& action = actions[position];
      if (action.op == Op::kReduceGradient) continue;
      Entry& entry = entries_[entry_index(action.stage, action.micro_batch)];
      const ActionPosition where{static_cast<int>(device), static_cast<int>(position)};
      if (action.op == Op::kForward) entry.forward = where;
      if (makes_input_gradient(action.op)) entry.gradient = where;
      if (action.op == Op::kBackward || action.op == Op::kWeightGradient) entry.last = where;
    }
  }
}

std::size_t ActionIndex::entry_index(StageId stage, MicroBatchId micro_batch) const {
  return static_cast<std::size_t>(index(stage)) * static_cast<std::size_t>(schedule_.micro_batches) +
         static_cast<std::size_t>(index(micro_batch));
}

const Action& ActionIndex::at(ActionPosition where) const {
  return schedule_.devices[static_cast<std::size_t>(where.device)][static_cast<std::size_t>(where.position)];
}

ActionPosition ActionIndex::find_gradient(StageId stage, MicroBatchId micro_batch) const {
  return entry(stage, micro_batch).gradient;
}

ActionPosition ActionIndex::find_last(const Action& action) const {
  return entry(action.stage, action.micro_batch).last;
}

ActionPosition ActionIndex::source(const Action& action) const {
  if (action.op == Op::kForward && index(action.stage) > 0)
    return entry(shifted(action.stage, -1), action.micro_batch).forward;
  if (makes_input_gradient(action.op) && index(action.stage) + 1 < schedule_.stages)
    return find_gradient(shifted(action.stage, 1), action.micro_batch);
  return {};
}

ActionPosition ActionIndex::receiver(const Action& action) const {
  if (action.op == Op::kForward && index(action.stage) + 1 < schedule_.stages)
    return entry(shifted(action.stage, 1), action.micro_batch).forward;
  if (makes_input_gradient(action.op) && index(action.stage) > 0)
    return find_gradient(shifted(action.stage, -1), action.micro_batch);
  return {};
}

ActionPosition ActionIndex::own_input(const Action& action) const {
  if (makes_input_gradient(action.op)) return entry(action.stage, action.micro_batch).forward;
  if (action.op == Op::kWeightGradient) return entry(action.stage, action.micro_batch).gradient;
  return {};
}

Payload ActionIndex::payload(const Action& sent) {
  return sent.op == Op::kForward ? Payload::kActivation : Payload::kGradient;
}

}  // namespace sluice::pipeline
