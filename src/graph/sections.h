// sections: cuts a program into sections, each of which becomes a layer. What passes a cut, its border, are the values
// that later nodes take. Values that depend on no parameter and no written buffer (masks, positions, sizes) are not
// sent. Each section that needs them computes them again from the inputs of the model. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "graph/program.h"

namespace sluice::graph {

struct Section {
  std::string name;             // "encoder.layer.3": the module that its nodes have in common, unique in the program
  std::vector<int> nodes;       // to run, in order; with those that are run again
  std::vector<ValueId> inputs;  // the border before: values of earlier sections, then inputs of the model
  // The border after, which is what the next section takes; at the end the outputs. Inputs of the model are passed on
  // as they came, even if the section writes to them.
  std::vector<ValueId> outputs;
  std::vector<ValueId> written;  // ascending: values that share memory with what its nodes write to
  bool is_last = false;
  std::vector<int> states;  // inputs of the program that are parameters, buffers or constants, taken by its nodes
};

struct CommonSections {
  std::vector<Section> training, evaluation;
};
// The sections of two programs of a model. A cut of both comes after the same weights, and the same values pass it. So
// frozen sections of one may be followed by sections of the other.
// One value passes a cut: between blocks, or between the halves of a transformer's block. If a third of the model has
// no such cut, two values may pass there, and so on.
[[nodiscard]] CommonSections cut_both(const Program& training, const Program& evaluation);

}  // namespace sluice::graph
