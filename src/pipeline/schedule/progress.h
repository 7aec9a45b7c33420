// progress: runs a schedule without time. Devices walk their lists; a unit runs when the results that it needs are
// there. What cannot reach the end waits in a cycle, which is told.
// Not here: durations (simulate.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/action_index.h"

namespace sluice::pipeline {

// How results travel, as far as it can block.
struct Transport {
  // Messages that a receiver can hold in each queue (source, target, payload) before it uses them. A sender waits until
  // its message has a buffer; 0 is a rendezvous: both sides must be at the message. Nothing: as many as are sent, so
  // that a sender never waits. That is what pipeline/executor.h does.
  std::optional<int> receive_buffers;
  // Stages that share parameters: their REDUCE_GRADs are one reduction, in which all wait for each other. A stage is in
  // one group at most.
  std::vector<std::vector<StageId>> tied;
};

// "0B0 waits for 1B0, which is after 1F1 on device 1, 1F1 waits for ..." where devices wait for each other for ever;
// nothing when all reach the end.
// Requires: every (stage, micro-batch) complete, one owner a stage, own inputs first; with receive buffers also equal
// orders of sending and receiving.
[[nodiscard]] std::optional<std::string> find_deadlock(const Schedule& schedule, const ActionIndex& index,
                                                       const Transport& transport = {});

// The least receive buffers with which no sender waits for ever. Requires: a validated schedule.
[[nodiscard]] int needed_receive_buffers(const Schedule& schedule);

// Calls `visit` for each unit, given by the position of its first action, after the units whose results it needs and
// those before it on its device. Requires: find_deadlock() finds none with the default transport.
void for_each_in_order(const Schedule& schedule, const ActionIndex& index,
                       const std::function<void(ActionPosition)>& visit);

}  // namespace sluice::pipeline
