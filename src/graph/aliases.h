// aliases: which values of a program share memory, and which nodes write to it. Pure functions.
#pragma once

#include <vector>

#include "graph/program.h"

namespace sluice::graph {

// Tensors that the node writes to: of operators in place ("relu_"), and the running statistics of norms.
[[nodiscard]] std::vector<ValueId> written_by(const Node& node);

// [value]: the node that makes it; -1: an input of the program.
[[nodiscard]] std::vector<int> makers_in(const Program& program);

struct Aliases {
  std::vector<int> group;                 // [value]: values with the same number may share memory
  std::vector<std::vector<int>> writers;  // [group]: nodes that write to it, ascending
};
[[nodiscard]] Aliases find_aliases(const Program& program);

// [value]: whether the order of its numbers in memory is seen, because something writes to it after an operator that
// gives a view in one order and a copy in another, such as "reshape".
[[nodiscard]] std::vector<bool> seen_orders(const Program& program, const Aliases& aliases);
// Whether the node's result is, or may be, a view of what it takes.
[[nodiscard]] bool may_be_view(const Node& node);

// Numbers of the program's inputs whose values its first output depends on, not counting what is detached.
[[nodiscard]] std::vector<int> differentiated_inputs(const Program& program, const Aliases& aliases);

}  // namespace sluice::graph
