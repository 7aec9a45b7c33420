#include "graph/instructions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "graph/aliases.h"
#include "graph/node_arguments.h"
#include "graph/node_values.h"
#include "graph/random_nodes.h"
#include "graph/size_numbers.h"

namespace sluice::graph {
namespace {

using c10::IValue;
using Fill = Instruction::Fill;
using Kind = Instruction::Kind;

[[noreturn]] void refuse(const Node& node, const std::string& why) { throw ConfigError(node.refusal(why)); }

// The tensor with its dimensions in this order in memory (Value::order).
at::Tensor in_order(const at::Tensor& tensor, const std::vector<std::int64_t>& order) {
  if (order.empty()) return tensor.contiguous();
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<std::int64_t>(i);
  return tensor.permute(order).contiguous().permute(back);
}

}  // namespace

std::optional<at::Device> device_of(const nn::Tensors& tensors) {
  const auto known =
      std::ranges::find_if(tensors, [](const at::Tensor& one) { return one.defined() && one.dim() > 0; });
  return known == tensors.end() ? std::nullopt : std::optional(known->device());
}

// The values of a call.
class Instructions::Call {
 public:
  Call(int slots, at::Device device) : slots_(static_cast<std::size_t>(slots)), device_(device) {}

  [[nodiscard]] IValue& slot(int i) { return slots_[static_cast<std::size_t>(i)]; }

  void run(const Instruction& instruction, const nn::ForwardContext& context) {
    stack_ = instruction.arguments;
    for (const int argument : instruction.device_arguments) stack_[argument] = device_;
    for (const Fill& fill : instruction.fills) stack_[fill.argument] = value_of(fill);
    if (const Value* value = instruction.ordered_argument) stack_[0] = in_order(stack_[0].toTensor(), value->order);
    switch (instruction.kind) {
      case Kind::kOperator: call(instruction); break;
      case Kind::kNumber: stack_ = {compute_number(*instruction.node, stack_)}; break;
      case Kind::kPattern: stack_ = {instruction.run(tensors_of(stack_), context)}; break;
      case Kind::kRandom:
        stack_ = {run_random(*instruction.node, *instruction.op, stack_, instruction.batch_dim, context)};
        break;
    }
    put_outputs(instruction);
    for (const int last : instruction.last_uses) slot(last) = IValue();
  }

 private:
  void call(const Instruction& instruction) {
    const c10::impl::ExcludeDispatchKeyGuard without(instruction.node->without_autocast ? c10::autocast_dispatch_keyset
                                                                                        : c10::DispatchKeySet());
    instruction.op->callBoxed(stack_);
  }
  [[nodiscard]] static nn::Tensors tensors_of(const std::vector<IValue>& values) {
    nn::Tensors tensors;
    for (const IValue& value : values) tensors.push_back(value.isNone() ? at::Tensor() : value.toTensor());
    return tensors;
  }
  [[nodiscard]] at::Tensor tensor_in(int at) { return at < 0 ? at::Tensor() : slot(at).toTensor(); }

  [[nodiscard]] IValue value_of(const Fill& fill) {
    switch (fill.as) {
      case Fill::As::kValue: return slot(fill.slots.front());
      case Fill::As::kNumberTensor: return number_tensor(slot(fill.slots.front()).toScalar());
      case Fill::As::kNumbers: {
        c10::List<std::int64_t> numbers;
        for (std::size_t i = 0; i < fill.slots.size(); ++i)
          numbers.push_back(fill.slots[i] < 0 ? fill.numbers[i] : slot(fill.slots[i]).toInt());
        return numbers;
      }
      case Fill::As::kTensors: {
        c10::List<at::Tensor> tensors;
        for (const int at : fill.slots) tensors.push_back(tensor_in(at));
        return tensors;
      }
      case Fill::As::kOptionalTensors: break;
    }
    c10::List<std::optional<at::Tensor>> tensors;
    for (const int at : fill.slots) tensors.push_back(at < 0 ? std::nullopt : std::optional(tensor_in(at)));
    return tensors;
  }

  void put_outputs(const Instruction& instruction) {
    const auto put = [&](std::size_t i, IValue value) {
      if (instruction.outputs[i] < 0) return;
      if (const Value* ordered = instruction.ordered_outputs[i]) value = in_order(value.toTensor(), ordered->order);
      slot(instruction.outputs[i]) = std::move(value);
    };
    if (instruction.kind != Kind::kPattern && instruction.node->has_list) {
      const std::vector<at::Tensor> tensors = stack_.at(0).toTensorVector();
      check(tensors.size() == instruction.outputs.size(), "as many tensors as in the exported program");
      for (std::size_t i = 0; i < tensors.size(); ++i) put(i, tensors[i]);
      return;
    }
    for (std::size_t i = 0; i < instruction.outputs.size(); ++i) put(i, std::move(stack_.at(i)));
  }

  std::vector<IValue> slots_;
  std::vector<IValue> stack_;
  at::Device device_;
};

Instructions::Instructions(const Program& program, const Section& section, const InstructionOptions& options)
    : program_(program), mode_(options.mode), slots_(program.values.size(), -1) {
  std::set<ValueId> written_by_patterns;
  for (const Pattern& pattern : options.patterns) {
    for (const int n : pattern.nodes) {
      for (const ValueId value : written_by(program.nodes[n])) written_by_patterns.insert(value);
    }
  }
  const auto is_written = [&](ValueId value) {
    return std::ranges::binary_search(section.written, value) && !written_by_patterns.contains(value);
  };
  for (const int state : section.states) {
    state_slots_.push_back(slot_of(program.inputs[state].value));
    is_state_written_.push_back(is_written(program.inputs[state].value));
    if (is_state_written_.back()) written_state_ = program.inputs[state].name;
  }
  for (const ValueId value : section.inputs) {
    input_slots_.push_back(slot_of(value));
    is_number_input_.push_back(program.values[value].kind == ValueKind::kNumber);
    is_written_.push_back(is_written(value));
    is_input_.push_back(is_user_input(program, value));
  }
  add_nodes(section, options);
  for (const ValueId value : section.outputs) {
    const auto taken = std::ranges::find(section.inputs, value);
    const bool is_passed_on = !section.is_last && is_user_input(program, value);
    passed_on_.push_back(is_passed_on ? static_cast<int>(taken - section.inputs.begin()) : -1);
    output_slots_.push_back(slot_of(value));
  }
  note_last_uses();
  slots_ = {};  // of the preparation alone
}

int Instructions::slot_of(ValueId value) {
  if (slots_[value] < 0) slots_[value] = slot_count_++;
  return slots_[value];
}

void Instructions::add_nodes(const Section& section, const InstructionOptions& options) {
  std::map<int, const Pattern*> patterns;  // by their nodes
  for (const Pattern& pattern : options.patterns) {
    for (const int n : pattern.nodes) patterns[n] = &pattern;
  }
  std::set<ValueId> written_states;
  for (const int state : section.states) {
    const ValueId value = program_.inputs[state].value;
    if (std::ranges::binary_search(section.written, value)) written_states.insert(value);
  }
  for (const int n : section.nodes) {
    const Node& node = program_.nodes[n];
    const auto pattern = patterns.find(n);
    const bool is_inside = pattern != patterns.end() && pattern->second->nodes.back() != n;
    if (is_inside || is_assertion(node)) continue;
    for (const ValueId value : node.outputs) {
      if (value != kNoValue) slot_of(value);
    }
    if (pattern != patterns.end()) {
      add(*pattern->second);
    } else {
      add(node, options);
      reshape_views(node, section);
      note_special(node, section, written_states);
    }
    keep_order(node, pattern != patterns.end(), options);
  }
}

// A slot is free after the last instruction that takes or makes it, unless the next section takes it.
void Instructions::note_last_uses() {
  std::vector<bool> is_needed(static_cast<std::size_t>(slot_count_), false);
  for (const int slot : output_slots_) is_needed[slot] = true;
  for (Instruction& instruction : std::views::reverse(instructions_)) {
    const auto note = [&](int slot) {
      if (slot < 0 || is_needed[slot]) return;
      is_needed[slot] = true;
      instruction.last_uses.push_back(slot);
    };
    for (const int slot : instruction.outputs) note(slot);
    for (const Fill& fill : instruction.fills) std::ranges::for_each(fill.slots, note);
  }
}

void Instructions::note_special(const Node& node, const Section& section, std::set<ValueId>& states) {
  const bool is_norm = node.target == "aten::batch_norm" || node.target == "aten::instance_norm";
  if (node.target == "aten::batch_norm" && NodeArguments(node).get<bool>("training") == true) norm_ = &node;
  bool takes_state = false;
  for_each_use(node, [&](ValueId value) { takes_state = takes_state || states.contains(value); });
  if (!takes_state || is_norm) return;
  const ValueId output = node.outputs.empty() ? kNoValue : node.outputs.front();
  if (std::ranges::binary_search(section.written, output)) {
    states.insert(output);  // a view, or what was written to
  } else {
    reader_ = &node;
  }
}

void Instructions::check_context(const nn::ForwardContext& context) const {
  if (mode_ != Mode::kTraining) return;
  if (norm_ != nullptr && context.numerics.batch_norm != nn::BatchNormMode::kMicro)
    throw ConfigError(norm_->described(), " can only normalise micro-batches; set pipeline.batch_norm = \"micro\"");
  if (!written_state_.empty() && context.micro_batch >= 0)
    throw ConfigError(
        "the exported model changes the buffer ", written_state_,
        " in training, other than by a batch normalisation that Sluice knows, so that its value depends on "
        "the layout; set train.reproducible = \"off\"");
  if (reader_ != nullptr && !context.update_statistics)
    throw ConfigError(reader_->described(),
                      " reads a buffer that training changes, which cannot be computed again; set pipeline.recompute = "
                      "\"none\"");
}

// Layers of ours give tensors in another order in memory. It is seen by writes to views of them, and by some operators.
void Instructions::keep_order(const Node& node, bool is_pattern, const InstructionOptions& options) {
  Instruction& instruction = instructions_.back();
  const bool is_new = (is_pattern || !may_be_view(node)) && options.order_is_seen != nullptr;
  for (const ValueId output : node.outputs) {
    const bool is_seen = is_new && output != kNoValue && (*options.order_is_seen)[output];
    instruction.ordered_outputs.push_back(is_seen ? &program_.values[output] : nullptr);
  }
  const bool sees_order = is_one_of(node, {"aten::as_strided", "aten::view_as_complex"}) ||
                          (node.target == "aten::view" && node.overload == "dtype");
  const ValueId self = NodeArguments(node).value("self");
  if (sees_order && !is_pattern && self != kNoValue) instruction.ordered_argument = &program_.values[self];
}

// Layers of ours may give a tensor in another order in memory, of which there is no such view.
void Instructions::reshape_views(const Node& node, const Section& section) {
  if (node.target != "aten::view" || !node.overload.empty()) return;
  if (!std::ranges::binary_search(section.written, node.outputs.front()))
    instructions_.back().op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::reshape", "");
}

void Instructions::add(const Node& node, const InstructionOptions& options) {
  Instruction& instruction = instructions_.emplace_back();
  instruction.node = &node;
  for (const ValueId value : node.outputs) instruction.outputs.push_back(value == kNoValue ? -1 : slots_[value]);
  if (is_number_node(node)) {
    instruction.kind = Kind::kNumber;
    add_numbers(node, instruction);
    return;
  }
  instruction.op = c10::Dispatcher::singleton().findSchema({node.target, node.overload});
  if (!instruction.op) refuse(node, "is not an operator of this LibTorch");
  for (const c10::Argument& argument : instruction.op->schema().arguments())
    add_argument(node, argument, options, slots_, instruction);
  if (options.mode == Mode::kEvaluation) {
    set_for_evaluation(node, instruction.op->schema(), instruction.arguments);
  }
  if (is_random(node, *instruction.op, instruction.arguments)) {
    instruction.kind = Kind::kRandom;
    instruction.batch_dim = batch_dim_of(program_, node);
    if (!is_supported_random(node)) refuse(node, "draws random numbers in a way that is not supported");
    if (options.mode == Mode::kEvaluation && !is_noise(node))
      throw ConfigError(node.described(),
                        " draws random numbers, also in evaluation; export the model with scripts/export_model.py");
  }
}

void Instructions::add(const Pattern& pattern) {
  Instruction& instruction = instructions_.emplace_back();
  instruction.kind = Instruction::Kind::kPattern;
  instruction.node = &program_.nodes[pattern.nodes.back()];
  instruction.pattern = pattern.name;
  instruction.run = pattern.run;
  instruction.outputs = {slots_[pattern.output]};
  instruction.arguments.resize(pattern.inputs.size());
  for (std::size_t i = 0; i < pattern.inputs.size(); ++i) {
    if (pattern.inputs[i] != kNoValue)
      instruction.fills.push_back({.argument = static_cast<int>(i), .slots = {slots_[pattern.inputs[i]]}});
  }
}

std::map<std::string, int> Instructions::calls() const {
  std::map<std::string, int> counts;
  for (const Instruction& instruction : instructions_) {
    if (instruction.kind == Kind::kNumber) continue;
    ++counts[instruction.pattern != nullptr ? std::string(instruction.pattern) : instruction.node->target];
  }
  return counts;
}

void Instructions::add_numbers(const Node& node, Instruction& instruction) const {
  for (const NamedArgument& argument : node.arguments) {
    const int position = static_cast<int>(instruction.arguments.size());
    instruction.arguments.emplace_back();
    if (const auto* number = std::get_if<Number>(&argument.value)) {
      if (number->value == kNoValue) {
        instruction.arguments.back() = number->fixed;
      } else {
        instruction.fills.push_back({.argument = position, .slots = {slots_[number->value]}});
      }
    } else if (const auto* tensor = std::get_if<TensorArgument>(&argument.value)) {
      instruction.fills.push_back({.argument = position, .slots = {slots_[tensor->value]}});
    } else if (const auto* real = std::get_if<double>(&argument.value)) {
      instruction.arguments.back() = *real;
    } else if (const auto* flag = std::get_if<bool>(&argument.value)) {
      instruction.arguments.back() = *flag;
    } else {
      refuse(node, "is not supported for sizes");
    }
  }
}

nn::Tensors Instructions::run(const nn::Tensors& states, const nn::Tensors& inputs,
                              const nn::ForwardContext& context) const {
  check(states.size() == state_slots_.size() && inputs.size() >= input_slots_.size(),
        "the tensors that the section takes");
  Call call(slot_count_, device_of(inputs).value_or(device_of(states).value_or(at::kCPU)));
  check_context(context);
  // Nodes write to copies: autograd keeps what they take, and states share a memory that later layers write to.
  nn::Tensors written = states;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (is_state_written_[i]) written[i] = states[i].clone(at::MemoryFormat::Contiguous);
    call.slot(state_slots_[i]) = written[i];
  }
  for (std::size_t i = 0; i < input_slots_.size(); ++i) call.slot(input_slots_[i]) = input_value(i, inputs[i]);
  for (const Instruction& instruction : instructions_) call.run(instruction, context);
  if (mode_ == Mode::kTraining && context.update_statistics) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (is_state_written_[i]) states[i].copy_(written[i]);
    }
  }
  return outputs_of(call, inputs);
}

IValue Instructions::input_value(std::size_t i, const at::Tensor& tensor) const {
  if (is_number_input_[i]) return tensor.item();
  const at::Tensor own = is_input_[i] ? tensor.detach() : tensor;
  return is_written_[i] ? own.clone(at::MemoryFormat::Contiguous) : own;
}

nn::Tensors Instructions::outputs_of(Call& call, const nn::Tensors& inputs) const {
  nn::Tensors outputs;
  for (std::size_t i = 0; i < output_slots_.size(); ++i) {
    const IValue& value = call.slot(output_slots_[i]);
    outputs.push_back(passed_on_[i] >= 0 ? inputs[passed_on_[i]].detach()
                      : value.isTensor() ? value.toTensor()
                                         : number_tensor(value.toScalar()));
  }
  return outputs;
}

}  // namespace sluice::graph
