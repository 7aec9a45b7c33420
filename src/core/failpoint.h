// failpoint: a named point in the code at which a test kills the process like kill -9. Threads: any.
// SLUICE_KILL_AT=plan-agreed:3 sluice train ... dies at the third call of failpoint("plan-agreed").
#pragma once

#include <string_view>

namespace sluice {

inline constexpr const char* kKillAt = "SLUICE_KILL_AT";

void failpoint(std::string_view name);

}  // namespace sluice
