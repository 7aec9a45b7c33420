// same_start: checks that all processes start with the same data and kind of devices. All processes call it together.
// Threads: one. Errors: ConfigError and DataError that name each difference and its ranks.
#pragma once

#include "train/setup/peers.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Call it after make_setup(), when all processes are connected. Also distributes rank 0's pipeline.order and fills
// setup.data.
void settle_together(const Peers& peers, Setup& setup);

}  // namespace sluice::train
