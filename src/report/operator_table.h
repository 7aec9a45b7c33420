// operator_table: formats the slowest operators per layer and pass, with their share of the machine's peaks.
#pragma once

#include <string>

#include "profiler/operator_profile.h"

namespace sluice::report {

[[nodiscard]] std::string operator_table(const profiler::OperatorProfile& profile);

}  // namespace sluice::report
