// validate: proves that a schedule is complete and cannot deadlock (docs/reference/schedules.md).
#pragma once

#include <optional>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/progress.h"

namespace sluice::pipeline {

// Capacity of the runtime; nullopt: unlimited.
struct Limits {
  std::optional<int> activations;  // per device: (stage, micro-batch) pairs in flight
  std::optional<int> stashes;      // per device: (stage, micro-batch) pairs between I and W
  Transport transport;
};

// Rules, in the order of the checks:
//   shape     at least one stage, micro-batch and device; no device without actions; the name is one word
//   range     stage and micro-batch of every action exist
//   pair      an overlapped pair is a forward and a B or I that comes directly after it
//   complete  every (stage, micro-batch) has exactly one F, and exactly one B or one I and one W, never both; without
//             any backward: every forward exactly once
//   owner     all actions of a stage are on one device
//   order     on the owner, F of a micro-batch comes before its B or I, and I before W
//   reduce    if there is a REDUCE_GRAD, each stage has exactly one, after its last B or W; tied stages need it, and a
//             stage is tied once
//   progress  program order and results together have no cycle
//   queue     between any two devices, results of one kind are received in the order in which they are sent
//   rendezvous  with the receive buffers of the transport, no sender waits for ever
//   memory    activations in flight and stashed weight gradients stay within the limits; none is left at the end, which
//             follows from complete and order
// `progress` and `queue` guarantee that every device reaches the end of its list, if the queues between devices never
// fill up. Errors: ConfigError names the rule, the action and what was expected. Devices and positions count from 0,
// without the text's header, comments, SEND and RECV.
void validate(const Schedule& schedule, const Limits& limits = {});

}  // namespace sluice::pipeline
