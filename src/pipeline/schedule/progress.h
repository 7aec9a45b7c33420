// progress: runs a schedule without time to find deadlocks, which are cycles of waiting devices.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/action_index.h"

namespace sluice::pipeline {

struct Transport {
  // Messages that a receiver can hold in each queue before it uses them. A sender waits for a free buffer; with 0 both
  // sides must be at the message. nullopt: unlimited, as in pipeline/executor.h.
  std::optional<int> receive_buffers;
  // Groups of stages that share parameters. A stage is in at most one group. The REDUCE_GRADs of a group wait for each
  // other.
  std::vector<std::vector<StageId>> tied;
};

// Describes a deadlock: "0B0 waits for 1B0, which is after 1F1 on device 1, 1F1 waits for ..."; nullopt without one.
// Requires: complete micro-batches, one owner per stage; with receive buffers, each queue is received in sending order.
[[nodiscard]] std::optional<std::string> find_deadlock(const Schedule& schedule, const ActionIndex& index,
                                                       const Transport& transport = {});

// The least receive buffers without a deadlock of senders. Requires: a validated schedule.
[[nodiscard]] int needed_receive_buffers(const Schedule& schedule);

// Calls `visit` with the first position of each unit, after the units that it needs. Requires: no deadlock.
void for_each_in_order(const Schedule& schedule, const ActionIndex& index,
                       const std::function<void(ActionPosition)>& visit);

}  // namespace sluice::pipeline
