// operator_flops: floating-point operations of one operator call, from the shapes of its arguments; a multiply-add is
// two. Counted are matrix products, convolutions and attention of ATen and of Sluice (nn/own_operator.h), for the
// direct algorithm. Counts agree with torch.utils.flop_counter: attention's backward is five products. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice::profiler {

using Shape = std::vector<std::int64_t>;

// By argument position; empty for arguments of another kind.
struct CallShapes {
  std::vector<Shape> inputs;
  std::vector<std::vector<bool>> flags;
  std::vector<Shape> outputs;
};

// Throws std::out_of_range if the shapes do not fit the operator.
using FlopFormula = double (*)(const CallShapes& call);

// Null if there is no formula. name: without the overload, for example "aten::mm".
[[nodiscard]] FlopFormula flop_formula(std::string_view name);

}  // namespace sluice::profiler
