// parameter_groups: weight decay and learning rate of a stage's parameters, as ranges of its flat buffer. Groups depend
// on the roles that layers give their parameters (nn::ParameterRole), never on names.
#pragma once

#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "pipeline/flat_parameters.h"

namespace sluice::engine {

struct GroupOptions {
  bool decays_norms = true;      // weights and biases of normalisations
  bool decays_biases = true;     // biases of all other layers
  bool decays_positions = true;  // position embeddings and class tokens
  double classifier_lr_factor = 1;
};

[[nodiscard]] std::vector<optim::UpdateRange> update_ranges(const pipeline::FlatParameters& parameters,
                                                            const GroupOptions& options);

}  // namespace sluice::engine
