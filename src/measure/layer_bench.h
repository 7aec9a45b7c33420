// layer_bench: runs the configured model's layers on the first device of this process, part by part as a stage does, so
// that each part can be observed alone. Transformed weights are kept between runs, as between micro-batches. Threads:
// one. Errors: those of the layers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "device/stream.h"
#include "measure/workload.h"
#include "models/model.h"
#include "nn/replica_sum.h"
#include "nn/transformed_weights.h"
#include "nn/weight_queue.h"
#include "pipeline/flat_parameters.h"

namespace sluice::measure {

class LayerBench {
 public:
  // The loss belongs to the last layer. With deferred weight gradients, kBackward computes only the input gradient.
  enum class Part { kForward, kLoss, kLossBackward, kBackward, kWeightGradient };
  // Must call `work`, which runs a part of the layer: once, or any number of times in run_repeatably().
  using Around = std::function<void(Part part, std::size_t layer, const std::function<void()>& work)>;
  // Holder of a layer's outputs and their gradients during its backward. kHeld: the caller, as in a recomputing stage.
  // kInGraph: autograd alone, as inside a stage's graph; it frees them after use. In a graph the previous layer gets
  // the gradient unchanged; a leaf's gradient has the leaf's layout.
  enum class Backward { kHeld, kInGraph };
  struct Run {
    nn::Tensors inputs;           // leaves, except with kInGraph
    nn::Tensors input_gradients;  // received with kInGraph
    nn::Tensors outputs;
    nn::Tensors output_gradients;  // passed to the layer's backward with kHeld
    nn::WeightGradQueue deferred;
  };

  explicit LayerBench(const Workload& workload);

  // Whether texts have Workload::tokens, or usual_tokens (at first).
  void use_longest(bool longest);
  void watch(std::function<void(Part part, std::size_t layer)> after) { after_ = std::move(after); }
  void run(std::int64_t samples, bool defers_weights, const Around& around, Backward how = Backward::kHeld);
  // Like run(), but `work` can be repeated with the same effect; inputs stay until the part is over.
  void run_repeatably(std::int64_t samples, const Around& around);
  [[nodiscard]] const Run& running(std::size_t layer) const { return runs_[layer]; }  // valid during run()

  [[nodiscard]] const std::vector<std::unique_ptr<nn::Layer>>& layers() const { return model_.layers; }
  [[nodiscard]] std::uint64_t transformed_bytes(std::size_t layer) const { return transformed_[layer].bytes(); }
  void forget_transformed();
  // false: each use transforms the weights again, as in a pass of one micro-batch.
  void keep_transformed(bool keeps) { keeps_transformed_ = keeps; }
  [[nodiscard]] const nn::Tensors& targets() const { return targets_; }
  [[nodiscard]] const device::Stream& stream() const { return stream_; }
  void synchronize() const { stream_.synchronize(); }

 private:
  [[nodiscard]] at::Tensor random(const models::TensorInfo& info, std::int64_t samples) const;
  [[nodiscard]] const nn::Tensors& inputs_of(std::int64_t samples);
  [[nodiscard]] Around watched(const Around& around) const;
  void forward(std::int64_t samples, bool defers_weights, const Around& around, Backward how);
  [[nodiscard]] nn::Tensors output_gradients(const Around& around, bool repeatable) const;
  void backward(nn::Tensors gradients, const Around& around, bool repeatable);
  void backward_in_graph(nn::Tensors gradients, const Around& around);

  const Workload& workload_;
  std::int64_t tokens_ = 0;
  device::Stream stream_;
  device::StreamGuard guard_;
  models::Model model_;
  std::size_t first_trained_;
  pipeline::FlatParameters parameters_;
  std::unique_ptr<nn::ReplicaSum> replicas_;
  nn::ForwardContext context_;
  std::vector<nn::TransformedWeights> transformed_;
  bool keeps_transformed_ = true;
  std::map<std::int64_t, nn::Tensors> inputs_;
  nn::Tensors targets_;
  std::function<void(Part part, std::size_t layer)> after_;
  std::deque<Run> runs_;
};

}  // namespace sluice::measure
