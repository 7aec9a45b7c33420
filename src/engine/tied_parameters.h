// tied_parameters: keeps one parameter that several layers use (nn::Parameter::tied_to) one parameter, though every
// layer has a copy, maybe in another stage: the copies' gradients are added to the owner's, which alone is updated, and
// its new values are copied back. The same sums and copies whatever the cut, so the cut does not change a bit.
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

// Of the model that the executor holds, in its order. Errors: BugError when an owner is missing or has another shape.
[[nodiscard]] std::vector<TiedParameter> find_tied_parameters(const pipeline::Executor& executor);

// After the sum over the replicas.
void add_tied_gradients(pipeline::Executor& executor, const std::vector<TiedParameter>& tied);
// After the owners have changed.
void copy_tied_values(pipeline::Executor& executor, const std::vector<TiedParameter>& tied);

}  // namespace sluice::engine
