// program: what torch.export makes of a PyTorch model, as a checked list of nodes without LibTorch. A node calls one
// operator of ATen; values are numbered in the order in which they appear.
// Threads: any. Errors: CheckpointError for a damaged file; ConfigError for what is not supported, with the node and
// the line of the user's Python.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace sluice::graph {

using ValueId = std::int32_t;
inline constexpr ValueId kNoValue = -1;

// A tensor of the program; kNoValue: no tensor.
struct TensorArgument {
  ValueId value = kNoValue;
  bool operator==(const TensorArgument&) const = default;
};
// A fixed whole number, or the number of a value, such as the size of a batch.
struct Number {
  std::int64_t fixed = 0;
  ValueId value = kNoValue;
  bool operator==(const Number&) const = default;
};
// Numbers of the enumerations of torch._export.serde.schema: ScalarType, Layout and MemoryFormat.
struct TypeArgument {
  int number = 0;
  bool operator==(const TypeArgument&) const = default;
};
struct LayoutArgument {
  int number = 0;
  bool operator==(const LayoutArgument&) const = default;
};
struct FormatArgument {
  int number = 0;
  bool operator==(const FormatArgument&) const = default;
};
// The device of the model; its name in the file does not matter.
struct DeviceArgument {
  bool operator==(const DeviceArgument&) const = default;
};

using Argument = std::variant<std::monostate, TensorArgument, Number, double, bool, std::string, TypeArgument,
                              LayoutArgument, FormatArgument, DeviceArgument, std::vector<TensorArgument>,
                              std::vector<Number>, std::vector<double>, std::vector<bool>>;

struct NamedArgument {
  std::string name;
  Argument value;
};

struct Node {
  std::string target;    // "aten::conv2d", or Python's "_operator.mul" for numbers
  std::string overload;  // "Tensor"; empty: the default one
  std::vector<NamedArgument> arguments;
  std::vector<ValueId> outputs;   // kNoValue: not used
  bool has_list = false;          // the operator returns one list, of the outputs
  std::string name;               // of the node in the file
  std::string module;             // "layer1.0.conv1"; empty: the model itself
  std::string module_class;       // "torch.nn.modules.conv.Conv2d"
  std::string line;               // of the user's Python: "File ..., line 12, in forward"; may be empty
  bool without_autocast = false;  // inside `with torch.autocast(enabled=False)`

  // The node for messages: its operator, name and line.
  [[nodiscard]] std::string described() const;
  // The message if the node is not supported. why: goes on after the description.
  [[nodiscard]] std::string refusal(const std::string& why) const;
};

enum class ValueKind : std::uint8_t { kTensor, kNumber };

// An extent of a tensor: a whole number, or a formula of symbols with its value for the example.
struct Extent {
  std::int64_t size = 0;
  std::string formula;  // empty: fixed
  bool operator==(const Extent&) const = default;
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::kTensor;
  int type = 0;  // of a tensor: number of schema.ScalarType
  std::vector<Extent> sizes;
  std::vector<std::int64_t> order;  // of its dimensions in memory, the outermost first; empty: that of the sizes
};
// Whether a tensor has complex numbers.
[[nodiscard]] bool is_complex(const Value& value);

enum class InputKind : std::uint8_t { kParameter, kBuffer, kConstant, kUser };

struct Input {
  InputKind kind = InputKind::kUser;
  ValueId value = kNoValue;
  std::string name;      // of the state, as in the module's state_dict(), or of the argument of forward()
  bool is_saved = true;  // false: a buffer that state_dict() lacks
};

struct Program {
  std::vector<Value> values;
  std::vector<Input> inputs;  // in the order of their values, which come first
  std::vector<Node> nodes;
  std::vector<ValueId> outputs;
  std::map<std::string, std::int64_t> largest;  // by symbol in formulas: "s41"; others have no limit
};

// Whether the value is an argument of forward().
[[nodiscard]] inline bool is_user_input(const Program& program, ValueId value) {
  return static_cast<std::size_t>(value) < program.inputs.size() && program.inputs[value].kind == InputKind::kUser;
}

// json: content of models/NAME.json of a file. source: the file, for messages.
[[nodiscard]] Program parse_program(const nlohmann::json& json, const std::string& source);

// A node that computes a number of sizes.
[[nodiscard]] bool is_number_node(const Node& node);

// A node that only checks what the export assumed.
[[nodiscard]] bool is_assertion(const Node& node);

// Calls visit(ValueId) for every value that the node takes.
template <typename Visit>
void for_each_use(const Node& node, const Visit& visit) {
  const auto of_one = [&](const auto& one) {
    if (one.value != kNoValue) visit(one.value);
  };
  for (const NamedArgument& argument : node.arguments) {
    if (const auto* tensor = std::get_if<TensorArgument>(&argument.value)) of_one(*tensor);
    if (const auto* number = std::get_if<Number>(&argument.value)) of_one(*number);
    if (const auto* tensors = std::get_if<std::vector<TensorArgument>>(&argument.value)) {
      for (const TensorArgument& tensor : *tensors) of_one(tensor);
    }
    if (const auto* numbers = std::get_if<std::vector<Number>>(&argument.value)) {
      for (const Number& number : *numbers) of_one(number);
    }
  }
}

}  // namespace sluice::graph
