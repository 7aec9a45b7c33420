// virtual_workers: a run on a parameter server whose workers take turns in this process, in virtual time
// (ps/virtual_cluster.h): the real server, its policy and the engine's own training step. One engine plays every
// worker: it pulls the weights before each step. Samples are leased (data/ledger.h): a worker takes the next ones,
// those that its time did not suffice for come back. After each update the engine holds what the server has.
// Threads: one. Errors: those of the training step and of ps/virtual_cluster.h.
#pragma once

#include <memory>

#include "train/serve/update_source.h"
#include "train/setup/setup.h"

namespace sluice::train {

// `setup` outlives it.
[[nodiscard]] std::unique_ptr<UpdateSource> make_virtual_workers(const Setup& setup);

}  // namespace sluice::train
