#include "graph/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace sluice::graph {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// One node: y = linear(x, weight).
json small_program() {
  return json::parse(R"json({
    "schema_version": {"major": 8, "minor": 17},
    "graph_module": {
      "graph": {
        "inputs": [{"as_tensor": {"name": "p_weight"}}, {"as_tensor": {"name": "x"}}],
        "outputs": [{"as_tensor": {"name": "y"}}],
        "nodes": [{
          "target": "torch.ops.aten.linear.default", "name": "y",
          "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "x"}}},
                     {"name": "weight", "arg": {"as_tensor": {"name": "p_weight"}}},
                     {"name": "bias", "arg": {"as_none": true}}],
          "outputs": [{"as_tensor": {"name": "y"}}],
          "metadata": {"nn_module_stack": "a,,mine.Net;b,body.fc,torch.nn.modules.linear.Linear",
                       "stack_trace": "File \"net.py\", line 12, in forward\n  x\nFile \"lib/torch/nn/linear.py\", line 3"}}],
        "tensor_values": {"p_weight": {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 4}]},
          "x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s0')", "hint": {"as_int": 3}}}, {"as_int": 4}]},
          "y": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s0')", "hint": {"as_int": 3}}}, {"as_int": 2}]}}
      },
      "signature": {
        "input_specs": [{"parameter": {"arg": {"name": "p_weight"}, "parameter_name": "body.fc.weight"}},
                        {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
        "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "y"}}}}]
      }
    }
  })json");
}

json& node(json& program) { return program["graph_module"]["graph"]["nodes"][0]; }

template <typename ErrorType, typename Change>
void expect_refused(const Change& change, const char* says) {
  json program = small_program();
  change(program);
  EXPECT_THAT([&] { static_cast<void>(parse_program(program, "m.pt2")); },
              ThrowsMessage<ErrorType>(AllOf(HasSubstr("m.pt2"), HasSubstr(says))));
}

TEST(Program, HasNodesWithModulesAndLines) {
  const Program program = parse_program(small_program(), "m.pt2");
  ASSERT_EQ(program.nodes.size(), 1U);
  const Node& linear = program.nodes.front();
  EXPECT_EQ(linear.target, "aten::linear");
  EXPECT_EQ(linear.overload, "");
  EXPECT_EQ(linear.module, "body.fc");
  EXPECT_EQ(linear.module_class, "torch.nn.modules.linear.Linear");
  EXPECT_EQ(linear.described(), R"(aten::linear (node y, module body.fc, File "net.py", line 12, in forward))");
  ASSERT_EQ(program.inputs.size(), 2U);
  EXPECT_EQ(program.inputs[0].kind, InputKind::kParameter);
  EXPECT_EQ(program.inputs[0].name, "body.fc.weight");
  EXPECT_EQ(program.inputs[1].name, "x");
  EXPECT_EQ(program.values[1].sizes, (std::vector<Extent>{{3, "Symbol('s0')"}, {4, ""}}));
  EXPECT_EQ(linear.arguments[0].value, Argument(TensorArgument{1}));
  EXPECT_EQ(linear.arguments[2].value, Argument(std::monostate()));
  EXPECT_EQ(program.outputs, std::vector<ValueId>{2});
}

TEST(Program, ReadsArgumentsOfEachKind) {
  json program = small_program();
  const auto read = [&](const json& argument) {
    node(program)["inputs"][2]["arg"] = argument;
    return parse_program(program, "m.pt2").nodes.front().arguments.back().value;
  };
  EXPECT_EQ(read({{"as_int", -3}}), Argument(Number{-3}));
  EXPECT_EQ(read({{"as_ints", {1, -1}}}), Argument(std::vector<Number>{{1}, {-1}}));
  EXPECT_EQ(read({{"as_float", 0.5}}), Argument(0.5));
  EXPECT_EQ(read({{"as_float", "-Infinity"}}), Argument(-std::numeric_limits<double>::infinity()));
  EXPECT_EQ(read({{"as_bool", true}}), Argument(true));
  EXPECT_EQ(read({{"as_string", "mean"}}), Argument(std::string("mean")));
  EXPECT_EQ(read({{"as_scalar_type", 7}}), Argument(TypeArgument{7}));
  EXPECT_EQ(read({{"as_device", {{"type", "cpu"}}}}), Argument(DeviceArgument{}));
  EXPECT_EQ(read({{"as_optional_tensors", {{{"as_none", true}}, {{"as_tensor", {{"name", "x"}}}}}}}),
            Argument(std::vector<TensorArgument>{{}, {1}}));
  EXPECT_EQ(read({{"as_sym_ints", {{{"as_int", 4}}}}}), Argument(std::vector<Number>{{4}}));
}

TEST(Program, DamageIsRefused) {
  expect_refused<CheckpointError>([](json& j) { j.erase("schema_version"); }, "\"schema_version\" is missing");
  expect_refused<ConfigError>([](json& j) { j["schema_version"]["major"] = 7; },
                              "has version 7 of torch.export's format, expected 8");
  expect_refused<CheckpointError>([](json& j) { j["graph_module"]["graph"]["nodes"] = 3; }, "expected a list, found 3");
  expect_refused<CheckpointError>([](json& j) { node(j)["outputs"][0]["as_tensor"]["name"] = "x"; },
                                  "a name that no other value has");
  expect_refused<CheckpointError>([](json& j) { node(j)["inputs"][0]["arg"]["as_tensor"]["name"] = "y"; },
                                  "a value that was defined before");
  expect_refused<CheckpointError>([](json& j) { node(j)["inputs"][0]["arg"]["as_int"] = 1; },
                                  "an object with one field");
  expect_refused<CheckpointError>([](json& j) { j["graph_module"]["graph"]["tensor_values"].erase("y"); },
                                  "a tensor that tensor_values describes");
  expect_refused<CheckpointError>([](json& j) { j["graph_module"]["graph"]["inputs"].erase(0); },
                                  "as many inputs as the signature has");
  expect_refused<CheckpointError>(
      [](json& j) {
        node(j)["inputs"][2]["arg"] = {{"as_sym_int", {{"as_name", "x"}}}};
      },
      "expected a number");
}

TEST(Program, WhatIsNotSupportedIsRefusedWithItsNode) {
  const char* where = R"((node y, module body.fc, File "net.py", line 12, in forward))";
  expect_refused<ConfigError>([](json& j) { node(j)["target"] = "torch.ops.mine.linear.default"; }, where);
  expect_refused<ConfigError>([](json& j) { node(j)["target"] = "torch.ops.higher_order.cond"; },
                              "is not an operator of ATen");
  expect_refused<ConfigError>([](json& j) { node(j)["target"] = "mine.f"; }, "is not an operator of PyTorch");
  expect_refused<ConfigError>(
      [](json& j) {
        node(j)["inputs"][2]["arg"] = {{"as_complex", {1, 2}}};
      },
      "takes as_complex, which is not supported");
  expect_refused<ConfigError>(
      [](json& j) {
        node(j)["outputs"][0] = {{"as_custom_obj", {{"as_name", "y"}}}};
      },
      "gives as_custom_obj");
  expect_refused<ConfigError>(
      [](json& j) {
        j["graph_module"]["graph"]["tensor_values"]["y"]["sizes"][0]["as_expr"]["expr_str"] = "Symbol('u0')";
      },
      "whose size depends on the values of its input");
  expect_refused<ConfigError>(
      [](json& j) {
        j["graph_module"]["signature"]["output_specs"][0] = {{"buffer_mutation", {{"arg", {{"name", "y"}}}}}};
      },
      "changes its inputs (buffer_mutation)");
}

}  // namespace
}  // namespace sluice::graph
