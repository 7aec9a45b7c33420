// call_cost: the tensors that an operator's call must touch at least, and the shapes for profiler/operator_flops.h.
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

void add_touched(std::span<const c10::IValue> values, std::vector<profiler::Touched>& all);
// The same for a call's arguments; an indexed table counts only with the entries that are read.
void add_touched_inputs(const OperatorTraits& traits, std::span<const c10::IValue> inputs,
                        std::vector<profiler::Touched>& all);

[[nodiscard]] std::vector<profiler::Shape> shapes_of(std::span<const c10::IValue> values);
[[nodiscard]] std::vector<std::vector<bool>> flags_of(std::span<const c10::IValue> values);

}  // namespace sluice::operators
