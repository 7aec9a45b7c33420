// call_cost: what the arguments and results of an operator's call tell of its cost: the tensors that it must touch at
// least, and the shapes that its operations are counted by (profiler/operator_flops.h). Threads: any; pure but for
// LibTorch's table of operators.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include "profiler/nested_calls.h"
#include "profiler/operator_flops.h"

namespace sluice::operators {

struct TableReader;

// What is the same for all calls of a name.
struct OperatorTraits {
  profiler::FlopFormula formula = nullptr;
  bool touches_nothing = false;  // it makes views, or memory without values
  const TableReader* table_reader = nullptr;
};
[[nodiscard]] OperatorTraits traits_of(const at::RecordFunction& call);

// Each tensor that has memory, also in lists; of an expanded one what there is of it.
void add_touched(std::span<const c10::IValue> values, std::vector<profiler::Touched>& all);
// The same of a call's arguments; of a table that is read by an index no more than what it points at.
void add_touched_inputs(const OperatorTraits& traits, std::span<const c10::IValue> inputs,
                        std::vector<profiler::Touched>& all);

// Both by the positions of the values. The sizes of a tensor; empty for anything else.
[[nodiscard]] std::vector<profiler::Shape> shapes_of(std::span<const c10::IValue> values);
// Of a bool, or of a list of them; empty for anything else.
[[nodiscard]] std::vector<std::vector<bool>> flags_of(std::span<const c10::IValue> values);

}  // namespace sluice::operators
