// parameter_groups: which parameters of a stage decay, and at which rate each learns, as ranges of its flat buffer.
// By what layers say of their parameters (nn::ParameterRole), never by their names. Not here: the update itself.
#pragma once

#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "pipeline/flat_parameters.h"

namespace sluice::engine {

struct GroupOptions {
  bool decays_norms = true;         // weights and biases of normalisations
  bool decays_biases = true;        // of all other layers
  bool decays_positions = true;     // position embeddings and class tokens
  double classifier_lr_factor = 1;  // times the learning rate
};

// One for each parameter that is updated, in their order.
[[nodiscard]] std::vector<optim::UpdateRange> update_ranges(const pipeline::FlatParameters& parameters,
                                                            const GroupOptions& options);

}  // namespace sluice::engine
