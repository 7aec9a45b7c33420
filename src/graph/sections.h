// sections: cuts a program into sections, each of which becomes a layer. What passes a cut, its border, are the values
// that later nodes take. Values that depend on no parameter (masks, positions, sizes) do not pass: the sections that
// take them compute them again from the inputs of the model. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "graph/program.h"

namespace sluice::graph {

struct Section {
  std::string name;            // "encoder.layer.3": the module that its nodes have in common, unique in the program
  std::vector<int> nodes;      // to run, in order; with those that are run again
  std::vector<ValueId> takes;  // the border before: values of earlier sections, then inputs of the model
  std::vector<ValueId> gives;  // the border after, which is what the next section takes; at the end the outputs
  std::vector<int> states;     // inputs of the program that are parameters, buffers or constants, taken by its nodes
};

// [value]: whether it depends on a parameter.
[[nodiscard]] std::vector<bool> depend_on_parameters(const Program& program);

// Cuts before nodes with weights where one value passes: between blocks, or between the halves of a transformer's
// block. If there is no such place in a third of the model, two values may pass there, and so on. At least one section.
[[nodiscard]] std::vector<Section> cut_into_sections(const Program& program);

// Every `step`-th node before which a cut is possible.
[[nodiscard]] std::vector<int> possible_cuts(const Program& program, int step);
// Cuts before these nodes, in ascending order.
[[nodiscard]] std::vector<Section> cut_at(const Program& program, const std::vector<int>& before);

}  // namespace sluice::graph
