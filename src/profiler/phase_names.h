// phase_names: what a phase (core/recorder.h) is called in records and traces: "forward", "all_reduce".
#pragma once

#include "core/recorder.h"

namespace sluice::profiler {

[[nodiscard]] const char* phase_word(Phase phase);

}  // namespace sluice::profiler
