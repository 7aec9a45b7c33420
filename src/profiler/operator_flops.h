// operator_flops: the floating-point operations of one call of an operator, from the shapes of its arguments. One
// multiply-add is two. Counted: matrix products, convolutions and attention, forward and backward, of ATen and of our
// own kernels (nn/own_operator.h); all else has no formula and counts none. They are those of the direct algorithm: a
// kernel that saves some (nn/winograd.h) is counted as if it did not. What PyTorch's own counter counts
// (torch.utils.flop_counter) is counted as there: attention's backward as five products, one of them repeating the
// scores. Not here: taking the shapes from a call (operators/call_cost.h). Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice::profiler {

using Shape = std::vector<std::int64_t>;

// By the positions of a call's arguments; empty where the argument is of another kind.
struct CallShapes {
  std::vector<Shape> inputs;
  std::vector<std::vector<bool>> flags;  // true or false, and lists of them
  std::vector<Shape> outputs;
};

// Throws std::out_of_range where the shapes are not those of such a call.
using FlopFormula = double (*)(const CallShapes& call);

// Null: none. name: without the overload, "aten::mm".
[[nodiscard]] FlopFormula flop_formula(std::string_view name);

}  // namespace sluice::profiler
