// operator_table: the operators of a model's layers as a text table. Not here: measuring them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiler/operator_profile.h"
#include "profiler/operator_sums.h"

namespace sluice::report {

// Of each layer and pass: the slowest operators, what they reach of the machine's peaks, and the rest in one row.
[[nodiscard]] std::string operator_table(const profiler::OperatorProfile& profile);

// An operator of one layer in the steps of a run.
struct OperatorLine {
  std::string layer;  // empty: not known
  profiler::Pass pass;
  std::string name;
  profiler::OperatorSum sum;  // over the steps, of all places of this process
};

// The slowest of all; lines: the slowest first.
[[nodiscard]] std::string slowest_operators(const std::vector<OperatorLine>& lines, std::int64_t steps);
// Of a row of the event `operators`.
[[nodiscard]] nlohmann::ordered_json operator_fields(const OperatorLine& line);

}  // namespace sluice::report
