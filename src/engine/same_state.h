// same_state: bit-equal parameters, buffers and optimizer state (its number of steps included) in all processes of a
// run: rank 0 hands them out, and they are compared. Threads: one; every process calls the same functions in the same
// order. Errors: PeerError for tensors that differ, with their name and the ranks.
#pragma once

#include <string>

#include "engine/compose.h"

namespace sluice::engine {

// Parameters, buffers and optimizer state of rank 0 into all processes; then check_same_state().
void hand_out_state(Composition& composition);

// `when`: for the message, "after step 100".
void check_same_state(const Composition& composition, const std::string& when);

}  // namespace sluice::engine
