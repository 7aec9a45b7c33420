// same_start: that all processes of a run begin, and stay, alike: the same configuration, the same data, and bit-equal
// parameters, buffers and optimizer state (its number of steps included), which rank 0 hands out.
// Threads: one; every process calls the same functions in the same order. Errors: ConfigError and DataError for what
// was started differently, PeerError for tensors that differ, each with its name and the ranks.
#pragma once

#include "comm/processes.h"
#include "train/compose.h"
#include "train/peers.h"
#include "train/setup.h"

namespace sluice::train {

// What must be the same in every process: the version of Sluice, and all keys of the configuration but those that say
// how one machine does its part (device.*, data.path, ...).
[[nodiscard]] comm::Agreement agreement_of(const config::Config& config, const std::string& version);

// What follows make_setup() when all processes are there: each takes its place, and they compare the kind of their
// devices, the sizes of their data sets and digests of the samples, which setup.data keeps.
void settle_together(const Peers& peers, Setup& setup);

// Parameters, buffers and optimizer state of rank 0 into all processes; then check_same_state().
void hand_out_state(const comm::Communicator& communicator, Composition& composition);

// `when`: for the message, "after step 100".
void check_same_state(const comm::Communicator& communicator, const Composition& composition, const std::string& when);

}  // namespace sluice::train
