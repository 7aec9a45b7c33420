// sections: cuts a program into sections, each of which becomes a layer. What passes a cut, its border, are the values
// that later nodes take. Values that depend neither on a parameter nor on a buffer that is written to (masks,
// positions, sizes) do not pass: the sections that take them compute them again from the inputs of the model. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "graph/program.h"

namespace sluice::graph {

struct Section {
  std::string name;            // "encoder.layer.3": the module that its nodes have in common, unique in the program
  std::vector<int> nodes;      // to run, in order; with those that are run again
  std::vector<ValueId> takes;  // the border before: values of earlier sections, then inputs of the model
  // The border after, which is what the next section takes; at the end the outputs. Inputs of the model are passed on
  // as they came, even if the section writes to them.
  std::vector<ValueId> gives;
  std::vector<ValueId> written;  // ascending: values that share memory with what its nodes write to
  bool is_last = false;
  std::vector<int> states;  // inputs of the program that are parameters, buffers or constants, taken by its nodes
};

// Where to cut: numbers of nodes with weights before each cut, ascending. One value passes a cut: between blocks, or
// between the halves of a transformer's block. If there is no such place in a third of the model, two values may pass
// there, and so on.
[[nodiscard]] std::vector<int> find_cuts(const Program& program);
// The sections of two programs of a model, cut where both have used the same weights and the same values pass: frozen
// sections of one are followed by sections of the other.
struct CommonSections {
  std::vector<Section> training, evaluation;
};
[[nodiscard]] CommonSections cut_both(const Program& training, const Program& evaluation);
// cuts: of the program.
[[nodiscard]] std::vector<Section> cut_into_sections(const Program& program, const std::vector<int>& cuts);

// What computes a value from inputs of the model alone. ConfigError if it depends on weights.
[[nodiscard]] Section section_for(const Program& program, ValueId value);

// Every `step`-th node before which a cut is possible.
[[nodiscard]] std::vector<int> possible_cuts(const Program& program, int step);
// Cuts before these nodes, in ascending order.
[[nodiscard]] std::vector<Section> cut_at(const Program& program, const std::vector<int>& before);

}  // namespace sluice::graph
