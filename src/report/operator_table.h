// operator_table: formats the operators of a model's layers as text: per layer and pass the slowest ones with their
// share of the machine's peaks, and one row for the rest.
#pragma once

#include <string>

#include "profiler/operator_profile.h"

namespace sluice::report {

[[nodiscard]] std::string operator_table(const profiler::OperatorProfile& profile);

}  // namespace sluice::report
