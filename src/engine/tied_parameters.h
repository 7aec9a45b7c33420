// tied_parameters: keeps a parameter that several layers use (nn::Parameter::tied_to) equal in all its copies, which
// may be in different stages. The copies' gradients are added to the owner's, only the owner is updated, and its new
// values are copied back. Sums and copies do not depend on the cut, so the bits do not either.
// Threads: one, between the passes of a step. With several replicas: on replica 0, whose gradients are the sums.
#pragma once

#include <vector>

#include "pipeline/executor.h"
#include "pipeline/flat_parameters.h"

namespace sluice::engine {

struct TiedParameter {
  StageId owner_stage, copy_stage;
  pipeline::ParameterEntry owner, copy;
};

// In the order of the executor's model. Errors: BugError if an owner is missing or has another shape.
[[nodiscard]] std::vector<TiedParameter> find_tied_parameters(const pipeline::Executor& executor);

void add_tied_gradients(pipeline::Executor& executor, const std::vector<TiedParameter>& tied);
void copy_tied_values(pipeline::Executor& executor, const std::vector<TiedParameter>& tied);

}  // namespace sluice::engine
