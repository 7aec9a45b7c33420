// phase_names: what a phase (core/recorder.h) is called in records and traces.
#pragma once

#include "core/recorder.h"

namespace sluice::profiler {

[[nodiscard]] const char* name_of(Phase phase);

}  // namespace sluice::profiler
