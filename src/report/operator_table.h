// operator_table: the operators of a model's layers as a text table. Not here: measuring them. Pure.
#pragma once

#include <string>

#include "profiler/operator_profile.h"

namespace sluice::report {

// Of each layer and pass: the slowest operators, what they reach of the machine's peaks, and the rest in one row.
[[nodiscard]] std::string operator_table(const profiler::OperatorProfile& profile);

}  // namespace sluice::report
