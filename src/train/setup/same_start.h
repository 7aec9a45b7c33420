// same_start: checks that all processes start with the same data and kind of devices.
// Threads: one. Errors: ConfigError and DataError that name each difference and its ranks.
#pragma once

#include "train/setup/peers.h"
#include "train/setup/setup.h"

namespace sluice::train {

// All processes call it together after make_setup(), when they are connected. Also distributes rank 0's pipeline.order
// and fills setup.data.
void settle_together(const Peers& peers, Setup& setup);

// Data and devices of this process: a process may join a run only if its own are equal.
[[nodiscard]] comm::Agreement data_agreement(const Setup& setup);

// Checks a process that wants to join the run, then waits until it has joined. Errors: also those of Peers::join().
void settle_as_guest(Peers& peers, Setup& setup);

}  // namespace sluice::train
