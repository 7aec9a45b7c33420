// patterns: groups of nodes that layers of this project (src/nn) compute instead of ATen's operators: with split
// backward, Winograd's algorithm and fused kernels. Every other node runs as it is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/aliases.h"
#include "graph/program.h"
#include "graph/sections.h"
#include "nn/batch_norm.h"
#include "nn/layer.h"

namespace sluice::graph {

struct Pattern {
  const char* name = "";        // of the layer: "convolution"
  std::vector<int> nodes;       // ascending; the pattern runs in place of the last
  std::vector<ValueId> inputs;  // kNoValue: no tensor
  ValueId output = kNoValue;
  std::function<at::Tensor(const nn::Tensors& inputs, const nn::ForwardContext& context)> run;
  nn::BatchNorm2d* norm = nullptr;  // the batch norm that run() calls; null: none
  bool may_be_written = false;      // operators in place may change the output
};

struct PatternOptions {
  bool is_training = true;
  at::ScalarType activations = at::kFloat;  // of products: bfloat16, or the type of the model
  // Whether a parameter of the program is trained.
  std::function<bool(const Input&)> is_trained;
  // Makes the layer of a batch norm, from the program's inputs (null: it has none).
  struct NormInputs {
    const Input *weight = nullptr, *bias = nullptr, *mean = nullptr, *variance = nullptr, *count = nullptr;
  };
  std::function<nn::BatchNorm2d*(const NormInputs&, const nn::BatchNormNumbers&)> make_norm;
};

// Disjoint, in the order of their last nodes.
// aliases: of the program.
[[nodiscard]] std::vector<Pattern> find_patterns(const Program& program, const Aliases& aliases, const Section& section,
                                                 const PatternOptions& options);

}  // namespace sluice::graph
