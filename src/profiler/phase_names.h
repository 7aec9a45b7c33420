// phase_names: names of phases (core/recorder.h) in records and traces, for example "forward" and "all_reduce".
#pragma once

#include <optional>
#include <string_view>

#include "core/recorder.h"

namespace sluice::profiler {

[[nodiscard]] const char* phase_word(Phase phase);
[[nodiscard]] std::optional<Phase> phase_of(std::string_view word);

}  // namespace sluice::profiler
