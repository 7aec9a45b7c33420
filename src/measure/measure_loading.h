// measure_loading: measures the time to prepare a sample of a data set, by one thread. Threads: works in the caller's.
// Errors: those of the loader.
#pragma once

#include "core/load_cost.h"
#include "data/dataset.h"
#include "data/loader.h"

namespace sluice::measure {

// Times some batches after the first, for about a second. Uses `options` except their threads. Files may come from the
// page cache.
[[nodiscard]] LoadCost measure_loading(const data::Dataset& set, data::LoaderOptions options);

}  // namespace sluice::measure
