// measure_loading: what it costs to prepare a sample of a data set, by one thread that does nothing else.
// Not here: what that makes of a step (tune/loading.h). Threads: works in the caller's. Errors: those of the loader.
#pragma once

#include "core/load_cost.h"
#include "data/dataset.h"
#include "data/loader.h"

namespace sluice::measure {

// Of some batches after the first, for about a second, as `options` has them but for their threads. What the system
// keeps of files in memory is in it.
[[nodiscard]] LoadCost measure_loading(const data::Dataset& set, data::LoaderOptions options);

}  // namespace sluice::measure
