// failpoint: a named point in the code at which a test kills the process like kill -9: no destructor runs, no buffer is
// flushed. Crash-recovery tests use it. If the variable is not set, a failpoint costs one branch. Threads: any.
//   SLUICE_KILL_AT=plan-agreed:3 sluice train ...     dies at the third call of failpoint("plan-agreed")
#pragma once

#include <string_view>

namespace sluice {

inline constexpr const char* kKillAt = "SLUICE_KILL_AT";

void failpoint(std::string_view name);

}  // namespace sluice
