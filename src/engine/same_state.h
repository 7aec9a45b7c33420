// same_state: keeps parameters, buffers and optimizer state (with its number of steps) bit-equal in all processes of a
// run. Threads: one; every process calls the same functions in the same order. Errors: PeerError for tensors that
// differ, with their name and the ranks.
#pragma once

#include <string>

#include "engine/compose.h"

namespace sluice::engine {

// Copies the parameters, buffers and optimizer state of rank 0 to all processes, then calls check_same_state().
void hand_out_state(Composition& composition);

void check_same_state(const Composition& composition, const std::string& when);

}  // namespace sluice::engine
