// validate: proves that a schedule is complete and cannot deadlock. Run on every schedule before it is executed or
// costed, whether generated or read from a file.
// Not here: whether it is fast or fits the memory.
#pragma once

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Rules, in the order in which they are tried:
//   shape     at least one stage, micro-batch and device; no device without actions; the name is one word
//   range     stage and micro-batch of every action exist
//   complete  every (stage, operation, micro-batch) exactly once; without any backward: every forward exactly once
//   owner     all actions of a stage are on one device
//   order     on the owner, F of a micro-batch comes before its B
//   progress  program order and results together have no cycle
//   queue     for each (source device, target device, payload), results are received in the order they are sent
// The last two together mean that devices which walk their lists, with a first-in first-out queue for each such
// triple that holds what is sent until it is taken, all reach the end.
// Errors: ConfigError naming the rule, the action and what was expected.
void validate(const Schedule& schedule);

}  // namespace sluice::pipeline
