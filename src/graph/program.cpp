#include "graph/program.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/json_node.h"
#include "core/text.h"

namespace sluice::graph {
namespace {

using nlohmann::json;

constexpr int kMajorVersion = 8;  // of torch._export.serde.schema that was tested
constexpr std::size_t kMostNodes = 100'000;

std::int64_t to_number(const JsonNode& node) {
  node.require(node.value().is_number_integer(), "a whole number");
  return node.value().get<std::int64_t>();
}

double to_real(const JsonNode& node) {
  if (node.value().is_string()) {  // JSON has no infinity
    const std::string word = node.text();
    if (word == "Infinity") return std::numeric_limits<double>::infinity();
    if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  node.require(node.value().is_number(), "a number");
  return node.value().get<double>();
}

// The one field of a union, with its name.
std::pair<std::string, JsonNode> only_field(const JsonNode& node) {
  node.require(node.value().is_object() && node.value().size() == 1, "an object with one field");
  const std::string name = node.value().begin().key();
  return {name, node.at(name)};
}

// The last line of a stack trace that is not PyTorch's own code.
std::string user_line(const std::string& trace) {
  std::string last;
  for (std::size_t begin = 0; begin < trace.size();) {
    const std::size_t end = std::min(trace.find('\n', begin), trace.size());
    const std::string_view line = std::string_view(trace).substr(begin, end - begin);
    const std::size_t file = line.find("File \"");
    if (file != std::string_view::npos && (last.empty() || line.find("/torch/") == std::string_view::npos))
      last = line.substr(file);
    begin = end + 1;
  }
  return last;
}

class Parser {
 public:
  Parser(const json& json, const std::string& source) : root_(json, source), source_(source) {}

  Program run() {
    check_version();
    const JsonNode module = root_.at("graph_module"), graph = module.at("graph");
    tensors_ = &graph.at("tensor_values").value();
    read_inputs(graph.at("inputs"), module.at("signature").at("input_specs"));
    const std::vector<JsonNode> nodes = graph.at("nodes").items();
    if (nodes.size() > kMostNodes)
      throw ConfigError(source_, " has ", nodes.size(), " nodes, at most ", kMostNodes, " are supported");
    for (const JsonNode& node : nodes) read_node(node);
    read_outputs(module.at("signature").at("output_specs"));
    read_limits();
    return std::move(program_);
  }

 private:
  void check_version() const {
    const int major = root_.at("schema_version").number("major");
    if (major == kMajorVersion) return;
    throw ConfigError(source_, " has version ", major, " of torch.export's format, expected ", kMajorVersion,
                      "; export the model with PyTorch 2.11: scripts/export_model.py");
  }

  void read_limits() {
    if (!root_.has("range_constraints")) return;
    const JsonNode ranges = root_.at("range_constraints");
    ranges.require(ranges.value().is_object(), "an object");
    for (const auto& [symbol, range] : ranges.value().items()) {
      const JsonNode node(range, concat(source_, ": range_constraints.", printable(symbol)));
      if (node.has("max_val")) program_.largest[symbol] = to_number(node.at("max_val"));
    }
  }

  ValueId add_value(const JsonNode& where, const std::string& name, ValueKind kind) {
    const auto id = static_cast<ValueId>(program_.values.size());
    if (!ids_.emplace(name, id).second) where.reject("a name that no other value has");
    Value& value = program_.values.emplace_back();
    value.name = name;
    value.kind = kind;
    if (kind == ValueKind::kTensor) read_tensor(where, value);
    return id;
  }

  void read_tensor(const JsonNode& where, Value& value) const {
    const auto found = tensors_->find(value.name);
    if (found == tensors_->end()) where.reject("a tensor that tensor_values describes");
    const JsonNode meta(*found, concat(source_, ": tensor_values.", printable(value.name)));
    value.type = meta.number("dtype");
    value.sizes = list_of<Extent>(meta.at("sizes"), extent_of);
    if (meta.has("strides")) value.order = order_of(value.sizes, list_of<Extent>(meta.at("strides"), extent_of));
  }

  static Extent extent_of(const JsonNode& node) {
    const auto [kind, size] = only_field(node);
    if (kind == "as_int") return {.size = to_number(size)};
    const bool has_hint = size.has("hint") && size.at("hint").has("as_int");
    return {.size = has_hint ? to_number(size.at("hint").at("as_int")) : 0, .formula = size.text("expr_str")};
  }

  // As Value::order. Dimensions of one entry are anywhere.
  static std::vector<std::int64_t> order_of(const std::vector<Extent>& sizes, const std::vector<Extent>& strides) {
    std::vector<std::int64_t> order;
    for (std::size_t i = 0; i < std::min(sizes.size(), strides.size()); ++i) {
      if (sizes[i].size != 1) order.push_back(static_cast<std::int64_t>(i));
    }
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::int64_t i) { return strides[i].size; });
    if (std::ranges::is_sorted(order)) return {};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i].size == 1) order.push_back(static_cast<std::int64_t>(i));
    }
    return order;
  }

  [[nodiscard]] ValueId find(const JsonNode& where, const std::string& name) const {
    const auto found = ids_.find(name);
    if (found == ids_.end()) where.reject("a value that was defined before");
    return found->second;
  }
  [[nodiscard]] TensorArgument tensor_named(const JsonNode& where, const std::string& name) const {
    const ValueId value = find(where, name);
    where.require(program_.values[value].kind == ValueKind::kTensor, "a tensor");
    return {value};
  }
  [[nodiscard]] Number number_of(const JsonNode& node) const {
    const auto [kind, field] = only_field(node);
    if (kind == "as_int") return {.fixed = to_number(field)};
    node.require(kind == "as_name", "as_int or as_name");
    const ValueId value = find(field, field.text());
    field.require(program_.values[value].kind == ValueKind::kNumber, "a number");
    return {.value = value};
  }

  template <typename Read>
  [[nodiscard]] Argument number_or(const JsonNode& node, const char* fixed, const Read& read) const {
    return node.has(fixed) ? Argument(read(node.at(fixed))) : Argument(number_of(node));
  }

  template <typename T, typename Read>
  static std::vector<T> list_of(const JsonNode& node, const Read& read) {
    std::vector<T> values;
    for (const JsonNode& item : node.items()) values.push_back(read(item));
    return values;
  }

  [[nodiscard]] TensorArgument optional_tensor(const JsonNode& node) const {
    const auto [kind, field] = only_field(node);
    return kind == "as_tensor" ? tensor_named(field, field.text("name")) : TensorArgument{};
  }

  [[nodiscard]] std::vector<TensorArgument> tensors_of(const JsonNode& list) const {
    return list_of<TensorArgument>(list, [&](const JsonNode& one) { return tensor_named(one, one.text("name")); });
  }

  // By the names of the schema's union; others are not supported.
  using Reading = Argument (*)(const Parser& parser, const JsonNode& field);
  static const std::map<std::string, Reading, std::less<>>& readings() {
    using P = const Parser&;
    using J = const JsonNode&;
    static const std::map<std::string, Reading, std::less<>> all{
        {"as_none", [](P, J) -> Argument { return std::monostate(); }},
        {"as_tensor", [](P parser, J field) -> Argument { return parser.tensor_named(field, field.text("name")); }},
        {"as_tensors", [](P parser, J field) -> Argument { return parser.tensors_of(field); }},
        {"as_optional_tensor", [](P parser, J field) -> Argument { return parser.optional_tensor(field); }},
        {"as_optional_tensors",
         [](P parser, J field) -> Argument {
           return list_of<TensorArgument>(field, [&](J one) { return parser.optional_tensor(one); });
         }},
        {"as_int", [](P, J field) -> Argument { return Number{.fixed = to_number(field)}; }},
        {"as_ints",
         [](P, J field) -> Argument {
           return list_of<Number>(field, [](J one) { return Number{.fixed = to_number(one)}; });
         }},
        {"as_sym_int", [](P parser, J field) -> Argument { return parser.number_of(field); }},
        {"as_sym_float", [](P parser, J field) -> Argument { return parser.number_or(field, "as_float", to_real); }},
        {"as_sym_bool",
         [](P parser, J field) -> Argument {
           return parser.number_or(field, "as_bool", [](J one) { return one.flag(); });
         }},
        {"as_sym_ints",
         [](P parser, J field) -> Argument {
           return list_of<Number>(field, [&](J one) { return parser.number_of(one); });
         }},
        {"as_float", [](P, J field) -> Argument { return to_real(field); }},
        {"as_floats", [](P, J field) -> Argument { return list_of<double>(field, to_real); }},
        {"as_bool", [](P, J field) -> Argument { return field.flag(); }},
        {"as_bools", [](P, J field) -> Argument { return list_of<bool>(field, [](J one) { return one.flag(); }); }},
        {"as_string", [](P, J field) -> Argument { return field.text(); }},
        {"as_scalar_type", [](P, J field) -> Argument { return TypeArgument{field.number()}; }},
        {"as_layout", [](P, J field) -> Argument { return LayoutArgument{field.number()}; }},
        {"as_memory_format", [](P, J field) -> Argument { return FormatArgument{field.number()}; }},
        {"as_device", [](P, J) -> Argument { return DeviceArgument(); }},
    };
    return all;
  }

  void read_inputs(const JsonNode& inputs, const JsonNode& specs) {
    const std::vector<JsonNode> values = inputs.items(), kinds = specs.items();
    inputs.require(values.size() == kinds.size(), "as many inputs as the signature has");
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto [kind, spec] = only_field(kinds[i]);
      const JsonNode argument = spec.at("arg");
      if (kind == "constant_input") continue;
      const bool is_user = kind == "user_input";
      if (is_user && !argument.has("as_tensor")) refuse_input(argument);
      const std::string name = (is_user ? argument.at("as_tensor") : argument).text("name");
      Input input{.value = add_value(argument, name, ValueKind::kTensor), .name = name};
      if (kind == "parameter") {
        input.kind = InputKind::kParameter;
        input.name = spec.text("parameter_name");
      } else if (kind == "buffer") {
        input.kind = InputKind::kBuffer;
        input.name = spec.text("buffer_name");
        input.is_saved = spec.flag("persistent");
      } else if (kind == "tensor_constant") {
        input.kind = InputKind::kConstant;
        input.name = spec.text("tensor_constant_name");
        input.is_saved = false;
      } else if (!is_user) {
        throw ConfigError(source_, " takes a ", printable(kind),
                          ", which is not supported; export a model that takes tensors");
      }
      program_.inputs.push_back(std::move(input));
    }
  }

  [[noreturn]] void refuse_input(const JsonNode& argument) const {
    throw ConfigError(source_, ": an input of forward() is no tensor (", printable(argument.value().dump()),
                      "); set it within the module before the export");
  }

  void read_node(const JsonNode& json) {
    Node node;
    read_origin(json, node);
    read_target(json.text("target"), node);
    for (const JsonNode& input : json.at("inputs").items()) {
      const auto [kind, field] = only_field(input.at("arg"));
      const auto reading = readings().find(kind);
      if (reading == readings().end()) refuse(node, concat("takes ", printable(kind), ", which is not supported"));
      node.arguments.push_back({input.text("name"), reading->second(*this, field)});
    }
    for (const JsonNode& output : json.at("outputs").items()) read_output(output, node);
    program_.nodes.push_back(std::move(node));
  }

  void read_origin(const JsonNode& json, Node& node) const {
    if (json.has("name")) node.name = json.text("name");
    const JsonNode meta = json.at("metadata");
    if (meta.has("stack_trace")) node.line = user_line(meta.text("stack_trace"));
    if (meta.has("custom")) {  // of scripts/export_regions.py, or the user's own
      const auto custom = nlohmann::json::parse(meta.text("custom"), nullptr, /*allow_exceptions=*/false);
      node.without_autocast = custom.is_object() && custom.value("without_autocast", nlohmann::json()) == true;
    }
    if (!meta.has("nn_module_stack")) return;
    // KEY,PATH,CLASS;KEY,PATH,CLASS, from the model to its innermost part
    const std::string stack = meta.text("nn_module_stack");
    const std::size_t begin = stack.rfind(';') == std::string::npos ? 0 : stack.rfind(';') + 1;
    const std::size_t first = stack.find(',', begin),
                      second = first == std::string::npos ? first : stack.find(',', first + 1);
    if (second == std::string::npos) return;
    const std::string path = stack.substr(first + 1, second - first - 1), kind = stack.substr(second + 1);
    if (path == kind) return;  // of a node that belongs to no module
    node.module = path;
    node.module_class = kind;
  }

  void read_target(const std::string& target, Node& node) const {
    constexpr std::string_view kOps = "torch.ops.", kAten = "aten.";
    constexpr std::string_view kSym = "torch.sym_";  // torch.sym_max: as _operator.max would be
    if (target.starts_with(kSym)) {
      node.target = "_operator." + target.substr(kSym.size());
      return;
    }
    if (target == "torch._sym_sqrt" || target == "math.trunc") {
      node.target = target == "math.trunc" ? "_operator.int" : "_operator.sqrt";
      return;
    }
    if (target.starts_with("_operator.")) {
      node.target = target;
      return;
    }
    node.target = target;
    if (!target.starts_with(kOps)) refuse(node, "is not an operator of PyTorch");
    const std::string rest = target.substr(kOps.size());
    const std::size_t dot = rest.rfind('.');
    if (!rest.starts_with(kAten) || dot < kAten.size()) refuse(node, "is not an operator of ATen");
    node.target = concat("aten::", rest.substr(kAten.size(), dot - kAten.size()));
    node.overload = rest.substr(dot + 1);
    if (node.overload == "default") node.overload.clear();
  }

  void read_output(const JsonNode& output, Node& node) {
    const auto [kind, field] = only_field(output);
    const auto add = [&](const JsonNode& one) {
      node.outputs.push_back(add_value(one, one.text("name"), ValueKind::kTensor));
      // Symbols u0, u1, ... are sizes that depend on the values of tensors.
      for (const Extent& extent : program_.values.back().sizes) {
        if (extent.formula.find("Symbol('u") != std::string::npos)
          refuse(node, "gives a tensor whose size depends on the values of its input, which is not supported");
      }
    };
    if (kind == "as_tensor") {
      add(field);
    } else if (kind == "as_tensors") {
      node.has_list = true;
      for (const JsonNode& one : field.items()) add(one);
    } else if ((kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") && field.has("as_name")) {
      if (!is_number_node(node)) refuse(node, "needs a value of the data to go on, which is not supported");
      node.outputs.push_back(add_value(field, field.text("as_name"), ValueKind::kNumber));
    } else if (kind == "as_none") {
      node.outputs.push_back(kNoValue);
    } else {
      refuse(node, concat("gives ", printable(kind), ", which is not supported"));
    }
  }

  void read_outputs(const JsonNode& specs) {
    for (const JsonNode& one : specs.items()) {
      const auto [kind, spec] = only_field(one);
      if (kind != "user_output" && kind != "loss_output") {
        throw ConfigError(source_, " changes its inputs (", printable(kind),
                          "): export it for training, with scripts/export_model.py");
      }
      const auto [type, field] = only_field(spec.at("arg"));
      if (type == "as_tensor") program_.outputs.push_back(tensor_named(field, field.text("name")).value);
    }
    if (program_.outputs.empty())
      throw ConfigError(source_, " gives no tensor; export a model that gives its logits or its loss");
  }

  [[noreturn]] void refuse(const Node& node, const std::string& why) const {
    throw ConfigError(source_, ": ", node.refusal(why));
  }

  JsonNode root_;
  std::string source_;
  const json* tensors_ = nullptr;
  std::map<std::string, ValueId, std::less<>> ids_;
  Program program_;
};

}  // namespace

std::string Node::described() const {
  return concat(printable(target), overload.empty() ? "" : ".", printable(overload), " (node ", printable(name),
                module.empty() ? "" : concat(", module ", printable(module)),
                line.empty() ? "" : concat(", ", printable(line)), ")");
}

std::string Node::refusal(const std::string& why) const {
  return concat(described(), " ", why, "; write that part of the model with other operators");
}

bool is_complex(const Value& value) {
  constexpr int kFirst = 9, kLast = 11;  // of schema.ScalarType
  return value.kind == ValueKind::kTensor && value.type >= kFirst && value.type <= kLast;
}

bool is_number_node(const Node& node) {
  return node.target.starts_with("_operator.") || node.target == "aten::sym_size" || node.target == "aten::sym_numel";
}

bool is_assertion(const Node& node) {
  return node.target == "aten::_assert_tensor_metadata" || node.target == "aten::_assert_scalar" ||
         node.target == "aten::sym_constrain_range_for_size" || node.target == "aten::sym_constrain_range";
}

Program parse_program(const json& json, const std::string& source) {
  try {
    return Parser(json, source).run();
  } catch (const DataError& error) {
    throw CheckpointError(error.what(), "; export the model again: scripts/export_model.py");
  }
}

}  // namespace sluice::graph
