// phase_names: what a phase (core/recorder.h) is called in records and traces: "forward", "all_reduce".
#pragma once

#include <optional>
#include <string_view>

#include "core/recorder.h"

namespace sluice::profiler {

[[nodiscard]] const char* phase_word(Phase phase);
// Nothing for a word that is no phase's.
[[nodiscard]] std::optional<Phase> phase_of(std::string_view word);

}  // namespace sluice::profiler
