// same_start: that all processes of a run begin alike: with the same data and the same kind of devices. Not here: the
// same configuration (agreement.h) and parameters (engine/same_state.h).
// Threads: one; every process calls the same functions in the same order. Errors: ConfigError and DataError for what
// was started differently, each with its name and the ranks.
#pragma once

#include "train/setup/peers.h"
#include "train/setup/setup.h"

namespace sluice::train {

// What follows make_setup() when all processes are there: each gets rank 0's pipeline.order and takes its place, and
// they compare the kind of their devices, the sizes of their data sets and digests of the samples, which setup.data
// keeps.
void settle_together(const Peers& peers, Setup& setup);

}  // namespace sluice::train
