#include "graph/sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "any_cuts.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/rng.h"

namespace sluice::graph {
namespace {

using testing::ElementsAre;

// Builds programs whose tensors are single numbers.
class Builder {
 public:
  ValueId input(InputKind kind) {
    const ValueId value = add_value();
    program.inputs.push_back({.kind = kind, .value = value, .name = concat("input", value)});
    return value;
  }
  ValueId node(const std::string& target, const std::vector<ValueId>& inputs, const std::string& module = "") {
    Node node{.target = concat("aten::", target), .name = concat("node", program.nodes.size()), .module = module};
    for (const ValueId value : inputs) node.arguments.push_back({"x", TensorArgument{value}});
    node.outputs = {add_value()};
    program.nodes.push_back(node);
    return node.outputs.front();
  }

  Program program;

 private:
  ValueId add_value() {
    program.values.push_back({.name = concat("value", program.values.size())});
    return static_cast<ValueId>(program.values.size()) - 1;
  }
};

// Numbers in memory that views share, as tensors do.
using Memory = std::shared_ptr<double>;
using Memories = std::map<ValueId, Memory>;

void run(const Program& program, const std::vector<int>& nodes, Memories& values) {
  for (const int n : nodes) {
    const Node& node = program.nodes[n];
    const auto taken = [&](std::size_t i) {
      return values.at(std::get<TensorArgument>(node.arguments[i].value).value);
    };
    if (node.target == "aten::view") {
      values[node.outputs.front()] = taken(0);
    } else if (node.target == "aten::add_") {
      *taken(0) = std::sin(*taken(0) + *taken(1));
      values[node.outputs.front()] = taken(0);
    } else {
      values[node.outputs.front()] = std::make_shared<double>(std::cos(*taken(0) + 2 * *taken(1)));
    }
  }
}

double first_value(ValueId value) { return 0.1 * value; }

std::vector<double> outputs_of_whole(const Program& program) {
  Memories values;
  for (const Input& input : program.inputs) values[input.value] = std::make_shared<double>(first_value(input.value));
  std::vector<int> all;
  for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) all.push_back(n);
  run(program, all, values);
  std::vector<double> outputs;
  for (const ValueId value : program.outputs) outputs.push_back(*values.at(value));
  return outputs;
}

std::vector<double> outputs_of(const Program& program, const std::vector<Section>& sections) {
  std::vector<double> border;
  for (const ValueId value : sections.front().inputs) border.push_back(first_value(value));
  for (const Section& section : sections) {
    Memories values;
    for (std::size_t i = 0; i < section.inputs.size(); ++i)
      values[section.inputs[i]] = std::make_shared<double>(border.at(i));
    for (const int state : section.states) {
      const ValueId value = program.inputs[state].value;
      values[value] = std::make_shared<double>(first_value(value));
    }
    run(program, section.nodes, values);
    border.clear();
    const auto is_input = [&](ValueId value) { return value < static_cast<ValueId>(program.inputs.size()); };
    for (const ValueId value : section.outputs) {
      const bool is_passed_on = is_input(value) && &section != &sections.back();
      border.push_back(is_passed_on ? first_value(value) : *values.at(value));
    }
  }
  return border;
}

Program random_program(std::uint64_t seed) {
  RngStream rng(seed);
  Builder builder;
  std::vector<ValueId> values, writable;
  for (const InputKind kind :
       {InputKind::kUser, InputKind::kParameter, InputKind::kUser, InputKind::kBuffer, InputKind::kParameter}) {
    values.push_back(builder.input(kind));
    if (kind != InputKind::kParameter) writable.push_back(values.back());
  }
  const auto any_of = [&](const std::vector<ValueId>& from) { return from[rng.below(from.size())]; };
  for (int n = 0; n < 24; ++n) {
    const std::uint64_t what = rng.below(4);
    const bool is_view = what == 0, is_write = what == 1;
    const ValueId first = is_view || is_write ? any_of(writable) : any_of(values);
    const ValueId made = is_view    ? builder.node("view", {first})
                         : is_write ? builder.node("add_", {first, any_of(values)})
                                    : builder.node("add", {first, any_of(values)});
    values.push_back(made);
    writable.push_back(made);
  }
  builder.program.outputs = {values.back(), any_of(values)};
  return builder.program;
}

std::string described(const Program& program) {
  std::string text;
  for (const Node& node : program.nodes) {
    text += concat(node.outputs.front(), " = ", node.target);
    for (const NamedArgument& argument : node.arguments)
      text += concat(" ", std::get<TensorArgument>(argument.value).value);
    text += "\n";
  }
  return text + concat("outputs ", program.outputs[0], " ", program.outputs[1], "\n");
}

TEST(Sections, GiveWhatTheWholeProgramGivesCutAnywhere) {
  std::size_t cuts = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Program program = random_program(seed);
    const std::vector<double> wanted = outputs_of_whole(program);
    const std::vector<int> possible = possible_cuts(program);
    for (const int cut : possible)
      ASSERT_EQ(outputs_of(program, cut_at(program, {cut})), wanted)
          << described(program) << "seed " << seed << ", cut before " << cut;
    ASSERT_EQ(outputs_of(program, cut_at(program, possible)), wanted) << seed;
    ASSERT_EQ(outputs_of(program, cut_both(program, program).training), wanted) << seed;
    cuts += possible.size();
  }
  EXPECT_GT(cuts, 5000U);
}

TEST(Sections, ComputeAValueOfTheInputsAlone) {
  int computed = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Program program = random_program(seed);
    const std::vector<double> wanted = outputs_of_whole(program);
    const Cutter cutter(program);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      try {
        const Section section = cutter.section_for(program.outputs[i]);
        ASSERT_TRUE(section.states.empty());
        ASSERT_EQ(outputs_of(program, {section}), std::vector{wanted[i]}) << described(program) << seed;
        ++computed;
      } catch (const ConfigError&) {  // it depends on a parameter or a buffer
      }
    }
  }
  EXPECT_GT(computed, 300);
}

TEST(Sections, MakeMasksAgainAndPassOnlyWhatWeightsMade) {
  Builder builder;
  const ValueId x = builder.input(InputKind::kUser), a = builder.input(InputKind::kParameter),
                b = builder.input(InputKind::kParameter), table = builder.input(InputKind::kConstant);
  const ValueId mask = builder.node("add", {x, table});
  const ValueId y = builder.node("linear", {mask, a}, "layers.0.self");
  const ValueId z = builder.node("linear", {y, b}, "layers.1.self");
  builder.program.outputs = {builder.node("mul", {z, mask}, "layers.1")};
  const std::vector<Section> sections = cut_both(builder.program, builder.program).training;
  ASSERT_EQ(sections.size(), 2U);
  EXPECT_EQ(sections[0].name, "layers.0.self");
  EXPECT_EQ(sections[1].name, "layers.1.self");
  EXPECT_THAT(sections[0].inputs, ElementsAre(x));
  EXPECT_THAT(sections[1].inputs, ElementsAre(y, x));
  EXPECT_THAT(sections[1].nodes, ElementsAre(0, 2, 3)) << "the mask is made again";
  EXPECT_THAT(sections[0].states, ElementsAre(1, 3));
  EXPECT_THAT(sections[1].states, ElementsAre(2, 3));
}

TEST(Sections, MakeAMaskAgainThatIsWrittenTo) {
  Builder builder;
  const ValueId x = builder.input(InputKind::kUser), a = builder.input(InputKind::kParameter);
  const ValueId mask = builder.node("add", {x, x});
  const ValueId y = builder.node("linear", {x, a});
  builder.node("add_", {mask, x});
  builder.program.outputs = {builder.node("mul", {builder.node("linear", {y, a}), mask})};
  EXPECT_THAT(possible_cuts(builder.program), ElementsAre(2, 3, 4));
  EXPECT_THAT(cut_at(builder.program, {3})[1].nodes, ElementsAre(0, 2, 3, 4));
}

TEST(Sections, KeepAMemoryInOnePieceUntilItsLastWrite) {
  Builder builder;
  const ValueId x = builder.input(InputKind::kUser), a = builder.input(InputKind::kParameter),
                calls = builder.input(InputKind::kBuffer);
  const ValueId y = builder.node("linear", {x, a});
  const ValueId view = builder.node("view", {y});
  builder.node("add_", {view, x});
  builder.program.outputs = {builder.node("linear", {y, a})};
  EXPECT_THAT(possible_cuts(builder.program), ElementsAre(3));
  builder.program.outputs = {builder.node("add", {builder.node("add_", {calls, y}), calls})};
  EXPECT_THAT(possible_cuts(builder.program), ElementsAre(3, 4)) << "not between the write and the use of a buffer";
}

}  // namespace
}  // namespace sluice::graph
