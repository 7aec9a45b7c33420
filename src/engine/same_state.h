// same_state: keeps parameters, buffers and optimizer state bit-equal in all processes. Threads: one; every process
// makes the same calls. Errors: PeerError names the tensor and the ranks that differ.
#pragma once

#include <string>

#include "engine/compose.h"

namespace sluice::engine {

void hand_out_state(Composition& composition);

void check_same_state(const Composition& composition, const std::string& when);

}  // namespace sluice::engine
