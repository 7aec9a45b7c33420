// Named moments at which a test has the process killed, as kill -9 would kill it there: no destructor runs, nothing is
// flushed. For tests of what survives; without the variable a failpoint costs one branch. Threads: any.
//
//   SLUICE_KILL_AT=plan-agreed:3 sluice train ...     dies when it comes to failpoint("plan-agreed") for the third time
#pragma once

#include <string_view>

namespace sluice {

inline constexpr const char* kKillAt = "SLUICE_KILL_AT";

void failpoint(std::string_view name);

}  // namespace sluice
