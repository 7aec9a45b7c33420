#include "graph/node_values.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "graph/scalar_type.h"

namespace sluice::graph {
namespace {

using c10::IValue;
using Fill = Instruction::Fill;

[[noreturn]] void refuse_value(const Node& node, const std::string& why) { throw ConfigError(node.refusal(why)); }

at::MemoryFormat memory_format(const Node& node, int number) {
  switch (number) {
    case 1: return at::MemoryFormat::Contiguous;
    case 2: return at::MemoryFormat::ChannelsLast;
    case 3: return at::MemoryFormat::ChannelsLast3d;
    case 4: return at::MemoryFormat::Preserve;
    default: refuse_value(node, concat("has memory format ", number, ", which is not supported"));
  }
}

// Without optional<...> around it.
c10::TypePtr plain_type(const c10::Argument& argument) {
  const c10::TypePtr type = argument.real_type();
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

bool is_list_of(const c10::TypePtr& type, c10::TypeKind kind) {
  const auto list = type->cast<c10::ListType>();
  return list && list->getElementType()->kind() == kind;
}

IValue number_as(const c10::TypePtr& type, const at::Scalar& number) {
  if (type->kind() == c10::TypeKind::TensorType) return number_tensor(number);
  if (type->kind() == c10::TypeKind::FloatType) return number.toDouble();
  if (number.isFloatingPoint()) return number.toDouble();
  return number.isBoolean() ? IValue(number.toBool()) : IValue(number.toLong());
}

// Turns an argument of a node into what the operator takes.
class Filler {
 public:
  Filler(const Node& node, const InstructionOptions& options, const std::vector<int>& slots, Instruction& instruction)
      : node_(node), options_(options), slots_(slots), instruction_(instruction) {}

  void add(const c10::Argument& wanted) {
    const int position = static_cast<int>(instruction_.arguments.size());
    IValue& value = instruction_.arguments.emplace_back();
    const auto given = std::ranges::find(node_.arguments, wanted.name(), &NamedArgument::name);
    if (given == node_.arguments.end()) {
      if (wanted.default_value()) value = *wanted.default_value();
      return;
    }
    const c10::TypePtr type = plain_type(wanted);
    std::visit([&](const auto& argument) { set(argument, type, position, value); }, given->value);
  }

 private:
  void set(std::monostate, const c10::TypePtr&, int, IValue&) {}
  void set(const TensorArgument& tensor, const c10::TypePtr&, int position, IValue&) {
    if (tensor.value != kNoValue) instruction_.fills.push_back({.argument = position, .slots = {slots_[tensor.value]}});
  }
  void set(const Number& number, const c10::TypePtr& type, int position, IValue& value) {
    if (number.value == kNoValue) {
      value = number_as(type, number.fixed);
    } else {
      const bool is_tensor = type->kind() == c10::TypeKind::TensorType;
      instruction_.fills.push_back({.argument = position,
                                    .slots = {slots_[number.value]},
                                    .as = is_tensor ? Fill::As::kNumberTensor : Fill::As::kValue});
    }
  }
  void set(double number, const c10::TypePtr& type, int, IValue& value) { value = number_as(type, number); }
  void set(bool flag, const c10::TypePtr& type, int, IValue& value) { value = number_as(type, flag); }
  void set(const std::string& word, const c10::TypePtr&, int, IValue& value) { value = word; }
  void set(const TypeArgument& type, const c10::TypePtr&, int, IValue& value) {
    const at::ScalarType asked = scalar_type(type.number, node_.described());
    value = asked == options_.from ? options_.to : asked;
  }
  void set(const LayoutArgument& layout, const c10::TypePtr&, int, IValue& value) {
    constexpr int kStrided = 7;
    if (layout.number != kStrided) refuse_value(node_, "has a tensor that is not dense, which is not supported");
    value = at::kStrided;
  }
  void set(const FormatArgument& format, const c10::TypePtr&, int, IValue& value) {
    value = memory_format(node_, format.number);
  }
  void set(DeviceArgument, const c10::TypePtr&, int position, IValue& value) {
    value = at::Device(at::kCPU);
    instruction_.device_arguments.push_back(position);
  }
  void set(const std::vector<TensorArgument>& tensors, const c10::TypePtr& type, int position, IValue&) {
    const auto list = type->cast<c10::ListType>();
    const bool are_optional = list && list->getElementType()->kind() == c10::TypeKind::OptionalType;
    Fill fill{.argument = position, .as = are_optional ? Fill::As::kOptionalTensors : Fill::As::kTensors};
    for (const TensorArgument& tensor : tensors)
      fill.slots.push_back(tensor.value == kNoValue ? -1 : slots_[tensor.value]);
    instruction_.fills.push_back(std::move(fill));
  }
  void set(const std::vector<Number>& numbers, const c10::TypePtr& type, int position, IValue& value) {
    Fill fill{.argument = position, .as = Fill::As::kNumbers};
    for (const Number& number : numbers) {
      fill.slots.push_back(number.value == kNoValue ? -1 : slots_[number.value]);
      fill.numbers.push_back(number.fixed);
    }
    if (std::ranges::any_of(fill.slots, [](int slot) { return slot >= 0; })) {
      instruction_.fills.push_back(std::move(fill));
    } else if (is_list_of(type, c10::TypeKind::FloatType)) {
      value = std::vector<double>(fill.numbers.begin(), fill.numbers.end());
    } else {
      value = fill.numbers;
    }
  }
  void set(const std::vector<double>& numbers, const c10::TypePtr&, int, IValue& value) { value = numbers; }
  void set(const std::vector<bool>& flags, const c10::TypePtr&, int, IValue& value) {
    c10::List<bool> list;
    for (const bool flag : flags) list.push_back(flag);
    value = std::move(list);
  }

  const Node& node_;
  const InstructionOptions& options_;
  const std::vector<int>& slots_;
  Instruction& instruction_;
};

}  // namespace

at::Tensor number_tensor(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(number, number.isFloatingPoint() ? at::kDouble
                                                : number.isBoolean()     ? at::kBool
                                                                         : at::kLong);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

void add_argument(const Node& node, const c10::Argument& wanted, const InstructionOptions& options,
                  const std::vector<int>& slots, Instruction& instruction) {
  Filler(node, options, slots, instruction).add(wanted);
}

}  // namespace sluice::graph
