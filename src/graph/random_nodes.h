// random_nodes: nodes that draw random numbers. They are replaced by numbers that are keyed by the sample, the step and
// the node (nn/dropout.h), so that they do not depend on how a batch is divided.
#pragma once

#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include "graph/program.h"
#include "nn/layer.h"

namespace sluice::graph {

// Sets the arguments that say that the model is in training: of dropout, batch norms and attention.
void set_for_evaluation(const Node& node, const c10::FunctionSchema& schema, std::vector<c10::IValue>& arguments);

// arguments: as the operator takes them.
[[nodiscard]] bool is_random(const Node& node, const c10::OperatorHandle& op,
                             const std::vector<c10::IValue>& arguments);
[[nodiscard]] bool is_supported_random(const Node& node);
// Numbers that are no dropout: also drawn in evaluation.
[[nodiscard]] bool is_noise(const Node& node);

// The dimension of the node's first output that has one entry, or several, for each sample; 0 if none is known.
[[nodiscard]] int batch_dim_of(const Program& program, const Node& node);

// What the operator gives, with keyed numbers. ConfigError if the samples are not found in it.
[[nodiscard]] at::Tensor run_random(const Node& node, const c10::OperatorHandle& op,
                                    const std::vector<c10::IValue>& arguments, int batch_dim,
                                    const nn::ForwardContext& context);

}  // namespace sluice::graph
