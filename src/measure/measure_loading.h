// measure_loading: the time to prepare a sample of a data set, by the calling thread. Errors: those of the loader.
#pragma once

#include "core/load_cost.h"
#include "data/dataset.h"
#include "data/loader.h"

namespace sluice::measure {

// Times batches for about a second. Uses `options` except their threads. Files may come from the page cache.
[[nodiscard]] LoadCost measure_loading(const data::Dataset& set, data::LoaderOptions options);

}  // namespace sluice::measure
