// size_numbers: nodes that compute numbers of sizes, such as that of a batch. Errors: ConfigError for other arithmetic.
#pragma once

#include <vector>

#include <ATen/core/ivalue.h>

#include "graph/program.h"

namespace sluice::graph {

// arguments: a tensor and a dimension of `sym_size`, a tensor of `sym_numel`, or the numbers of an operator of Python.
[[nodiscard]] c10::IValue compute_number(const Node& node, const std::vector<c10::IValue>& arguments);

}  // namespace sluice::graph
