// measure_alone: rank 0's own part of `sluice profile`: layers, contention between devices, links between stages,
// update, loading, parameter server. Threads: one, besides the devices'. Errors: those of the measured parts.
#pragma once

#include <functional>
#include <string>

#include "profiler/layer_profile.h"
#include "train/setup/setup.h"
#include "tune/deadline.h"

namespace sluice::train {

// end: for the layers and the contention, as shares of the time left.
[[nodiscard]] profiler::LayerProfile measure_alone(const Setup& setup, const std::string& version,
                                                   const tune::Deadline& end,
                                                   const std::function<void(const profiler::LayerProfile&)>& keep);

}  // namespace sluice::train
