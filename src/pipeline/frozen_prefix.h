// frozen_prefix: the frozen first layers of a model. They run before the pipeline, without graph, gradients, buckets or
// optimizer. Dropout is off; batch-norm uses its running statistics and does not change them. The output for a sample
// therefore depends on that sample only, and any device can compute it. Each device of a replica runs an equal share of
// the replica's samples (prefix_shares()), all at once, and sends the output to the first stage. pass.h runs the
// shares.
// Threads: forward() from any number of threads. All slots in one memory use one copy.
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

  // transformed: a cache of the calling thread, valid while the weights do not change; null: no cache. from: the first
  // layer that runs; inputs: the output of the layers before it.
  [[nodiscard]] at::Tensor forward(const at::Tensor& inputs, nn::TransformedWeights* transformed, int from = 0) const;

  [[nodiscard]] const FlatParameters& parameters() const { return *parameters_; }
  [[nodiscard]] const LayerList& layers() const { return layers_; }

 private:
  LayerList layers_;
  nn::Numerics numerics_;
  std::unique_ptr<FlatParameters> parameters_;
};

struct PrefixShare {
  MicroBatchId micro_batch;
  DeviceId device;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const PrefixShare&) const = default;
};

// Gives consecutive samples to one device after the other, in equal numbers (they differ by at most one), and splits
// them where a micro-batch ends. sizes: samples of each micro-batch of a replica. Returns the shares in sample order.
[[nodiscard]] std::vector<PrefixShare> prefix_shares(const std::vector<std::int64_t>& sizes, int devices);

[[nodiscard]] LayerList take_first(LayerList& layers, int count);

}  // namespace sluice::pipeline
