// virtual_workers: a run on a parameter server whose workers take turns in this process, in virtual time
// (ps/virtual_cluster.h). One engine plays every worker; after each update it holds the server's weights. Threads: one.
// Errors: those of the training step and of ps/virtual_cluster.h.
#pragma once

#include <memory>

#include "train/serve/update_source.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Requires: `setup` outlives it.
[[nodiscard]] std::unique_ptr<UpdateSource> make_virtual_workers(const Setup& setup);

}  // namespace sluice::train
