// size_numbers: nodes that compute whole numbers, such as sizes of batches. Errors: ConfigError for other arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/ivalue.h>

#include "graph/program.h"

namespace sluice::graph {

[[nodiscard]] bool is_number_node(const Node& node);
// arguments: a tensor and a dimension of `sym_size`, or the numbers of an operator of Python.
[[nodiscard]] std::int64_t compute_number(const Node& node, const std::vector<c10::IValue>& arguments);

}  // namespace sluice::graph
