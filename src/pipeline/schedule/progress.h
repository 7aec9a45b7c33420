// progress: runs a schedule without time. Each device walks its list; a unit runs when the results that it needs are
// available. Devices that cannot reach the end wait in a cycle, which is reported.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/action_index.h"

namespace sluice::pipeline {

struct Transport {
  // Messages that a receiver can hold in each queue (source, target, payload) before it uses them. A sender waits until
  // its message has a buffer. 0 is a rendezvous: both sides must be at the message. nullopt: unlimited, so that a
  // sender never waits, as in pipeline/executor.h.
  std::optional<int> receive_buffers;
  // Stages that share parameters: their REDUCE_GRADs are one reduction, in which all wait for each other. A stage is in
  // at most one group.
  std::vector<std::vector<StageId>> tied;
};

// Returns "0B0 waits for 1B0, which is after 1F1 on device 1, 1F1 waits for ..." for a deadlock, or nullopt.
// Requires: every (stage, micro-batch) complete, one owner per stage, own inputs first; with receive buffers also equal
// orders of sending and receiving.
[[nodiscard]] std::optional<std::string> find_deadlock(const Schedule& schedule, const ActionIndex& index,
                                                       const Transport& transport = {});

// The least receive buffers without a deadlock of senders. Requires: a validated schedule.
[[nodiscard]] int needed_receive_buffers(const Schedule& schedule);

// Calls `visit` for each unit, given by the position of its first action, after the units whose results it needs and
// the earlier units of its device. Requires: find_deadlock() finds none with the default transport.
void for_each_in_order(const Schedule& schedule, const ActionIndex& index,
                       const std::function<void(ActionPosition)>& visit);

}  // namespace sluice::pipeline
