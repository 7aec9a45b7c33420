// node_values: turns the arguments of a node into what its operator takes.
#pragma once

#include <vector>

#include <ATen/core/function_schema.h>

#include "graph/instructions.h"

namespace sluice::graph {

// Appends the argument `wanted` of the operator to the instruction. slots: of all values. ConfigError for what is not
// supported.
void add_argument(const Node& node, const c10::Argument& wanted, const InstructionOptions& options,
                  const std::vector<int>& slots, Instruction& instruction);

// A number of Python as an operator takes it for a tensor: in promotion it takes part as a number.
[[nodiscard]] at::Tensor number_tensor(const at::Scalar& number);

}  // namespace sluice::graph
