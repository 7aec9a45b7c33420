// frozen_prefix: the frozen first layers of a model. They run before the pipeline without graph, gradients, dropout or
// changes of batch-norm. The output for a sample therefore depends on that sample only. Each device of a replica runs
// an equal share of the samples (prefix_shares()) and sends the output to the first stage.
// Threads: forward() from any number of threads. All slots in one memory use one copy.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
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

  struct Features {
    nn::Tensors tensors;
    std::vector<int> sources;  // [tensor]: the input that it is; kMade: the layers have made it
  };
  static constexpr int kMade = -1;
  // transformed: the calling thread's cache while the weights do not change, or null. from: the first layer that runs.
  [[nodiscard]] Features forward(const nn::Tensors& inputs, nn::TransformedWeights* transformed, int from = 0) const;

  [[nodiscard]] const FlatParameters& parameters() const { return *parameters_; }
  [[nodiscard]] const LayerList& layers() const { return layers_; }
  // False for parameters that the model never trains, such as weights below adapters.
  [[nodiscard]] bool is_trained_when_thawed(const std::string& parameter) const { return trained_.contains(parameter); }

 private:
  std::set<std::string> trained_;  // names of parameters that required a gradient
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

// Equal consecutive shares (up to one sample), split where a micro-batch ends. sizes: samples of each micro-batch.
[[nodiscard]] std::vector<PrefixShare> prefix_shares(const std::vector<std::int64_t>& sizes, int devices);

// Whole micro-batches, equally many for each device up to one.
[[nodiscard]] std::vector<PrefixShare> whole_prefix_shares(const std::vector<std::int64_t>& sizes, int devices);

[[nodiscard]] LayerList take_first(LayerList& layers, int count);

}  // namespace sluice::pipeline
