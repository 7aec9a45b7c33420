// frozen_prefix: the first layers of a model where they are frozen. They run before the pipeline and outside of it:
// without a graph, gradients, buckets or optimizer; dropout is off, and batch-norm normalises by its running
// statistics, which stay as they are. So what they make of a sample depends on the sample alone, and it does not matter
// which device runs it: every device of a replica takes an equal share of its samples (prefix_shares()), all at once,
// and sends what comes out to the first stage. Not here: which layers are frozen (Plan::frozen_layers), who runs a
// share (pass.h). Threads: forward() from any number of threads. One copy serves all slots in one memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/ids.h"
#include "nn/layer.h"
#include "nn/transformed_weights.h"
#include "pipeline/flat_parameters.h"
#include "pipeline/split.h"

namespace sluice::pipeline {

class FrozenPrefix {
 public:
  // Its parameters require no gradient from here on.
  FrozenPrefix(LayerList layers, c10::Device device, nn::Numerics numerics = {});

  // transformed: of the calling thread, for as long as the weights do not change; null: nothing is kept.
  // from: the first layer that runs; inputs: what those before it make.
  [[nodiscard]] at::Tensor forward(const at::Tensor& inputs, nn::TransformedWeights* transformed, int from = 0) const;

  [[nodiscard]] const FlatParameters& parameters() const { return *parameters_; }
  [[nodiscard]] const LayerList& layers() const { return layers_; }

 private:
  LayerList layers_;
  nn::Numerics numerics_;
  std::unique_ptr<FlatParameters> parameters_;
};

// Samples [begin, end) of one micro-batch, which one device of the replica runs.
struct PrefixShare {
  MicroBatchId micro_batch;
  DeviceId device;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const PrefixShare&) const = default;
};

// Consecutive samples for one device after the other, as many each (they differ by at most one), cut where a
// micro-batch ends. sizes: of a replica's micro-batches. In the order of the samples.
[[nodiscard]] std::vector<PrefixShare> prefix_shares(const std::vector<std::int64_t>& sizes, int devices);

// Takes the first `count` layers away from `layers`.
[[nodiscard]] LayerList take_first(LayerList& layers, int count);

}  // namespace sluice::pipeline
