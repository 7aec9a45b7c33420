// measure_loading: what it costs to prepare a sample of the training set, by one thread that does nothing else.
// Not here: what that makes of a step (tune/loading.h). Threads: works in the caller's. Errors: those of the loader.
#pragma once

#include "core/load_cost.h"
#include "train/setup.h"

namespace sluice::train {

// Of some batches after the first, for about a second. What the system keeps of files in memory is in it.
[[nodiscard]] LoadCost measure_loading(const Setup& setup);

}  // namespace sluice::train
