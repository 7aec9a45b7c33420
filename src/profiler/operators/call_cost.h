// call_cost: cost of an operator's call from its arguments and results: the tensors it must touch at least, and the
// shapes for counting operations (profiler/operator_flops.h). Threads: any; pure except for LibTorch's table of
// operators.
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

struct OperatorTraits {
  profiler::FlopFormula formula = nullptr;
  bool touches_nothing = false;
  const TableReader* table_reader = nullptr;
};
[[nodiscard]] OperatorTraits traits_of(const at::RecordFunction& call);

// Adds each tensor with memory, also in lists; an expanded tensor counts with its actual memory.
void add_touched(std::span<const c10::IValue> values, std::vector<profiler::Touched>& all);
// The same for a call's arguments; an indexed table counts only with the entries that are read.
void add_touched_inputs(const OperatorTraits& traits, std::span<const c10::IValue> inputs,
                        std::vector<profiler::Touched>& all);

// Sizes by argument position; empty for values that are not tensors.
[[nodiscard]] std::vector<profiler::Shape> shapes_of(std::span<const c10::IValue> values);
// Booleans and lists of booleans by argument position; empty for anything else.
[[nodiscard]] std::vector<std::vector<bool>> flags_of(std::span<const c10::IValue> values);

}  // namespace sluice::operators
