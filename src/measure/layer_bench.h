// layer_bench: the layers of the configured model on the first device of this process, run part by part as a stage runs
// them, so that each part can be watched by itself: by a clock, by what it saves, by the memory it takes. Transformed
// weights are kept from run to run, as a stage keeps them from micro-batch to micro-batch; batch-norm is synchronised
// where it is in training, with itself alone.
// Not here: what is made of it (measure_layers.h, layer_bytes.h). Threads: one. Errors: those of the layers.
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
#include "nn/loss.h"
#include "nn/replica_sum.h"
#include "nn/transformed_weights.h"
#include "nn/weight_queue.h"
#include "pipeline/flat_parameters.h"

namespace sluice::measure {

class LayerBench {
 public:
  // The loss belongs to the last layer. kBackward computes the input gradient alone where weight gradients are
  // deferred.
  enum class Part { kForward, kLoss, kLossBackward, kBackward, kWeightGradient };
  // Runs `work`, a part of that layer's: once, or where it can be repeated, as often as wanted.
  using Around = std::function<void(Part part, std::size_t layer, const std::function<void()>& work)>;
  // What becomes of a layer's output and its gradient while its backward runs: they are held, as where a stage
  // recomputes; or autograd alone has them, as inside of a stage's graph, and frees them when it has used them. Inside
  // of a graph the layer before gets the gradient as it is, where a leaf's has the layout of the leaf.
  enum class Backward { kHeld, kInGraph };
  // Of one layer, until its backward is over.
  struct Run {
    at::Tensor input;           // a leaf, where its gradient is not to be had as inside of a graph
    at::Tensor input_gradient;  // as it comes there
    at::Tensor output;
    at::Tensor output_gradient;  // what its backward is given, where that is held
    nn::WeightGradQueue deferred;
  };

  explicit LayerBench(const Workload& workload);

  // Is told of each part of run() when it is over.
  void watch(std::function<void(Part part, std::size_t layer)> after) { after_ = std::move(after); }
  // A forward pass through all layers, the loss, and a backward pass.
  void run(std::int64_t samples, bool defers_weights, const Around& around, Backward how = Backward::kHeld);
  // The same with work that can be repeated: each call does what the first one did. What a part needs is kept until it
  // is over, and weight gradients are deferred.
  void run_repeatably(std::int64_t samples, const Around& around);
  [[nodiscard]] const Run& running(std::size_t layer) const { return runs_[layer]; }  // while run() runs

  [[nodiscard]] const std::vector<std::unique_ptr<nn::Layer>>& layers() const { return model_.layers; }
  [[nodiscard]] std::uint64_t transformed_bytes(std::size_t layer) const { return transformed_[layer].bytes(); }
  void forget_transformed();
  // false: each use makes its own, as in a pass of one micro-batch.
  void keep_transformed(bool keeps) { keeps_transformed_ = keeps; }
  [[nodiscard]] const at::Tensor& targets() const { return targets_; }  // of the last run
  [[nodiscard]] const device::Stream& stream() const { return stream_; }
  void synchronize() const { stream_.synchronize(); }

 private:
  [[nodiscard]] const at::Tensor& input_of(std::int64_t samples);
  [[nodiscard]] Around watched(const Around& around) const;
  void forward(std::int64_t samples, bool defers_weights, const Around& around, Backward how);
  [[nodiscard]] at::Tensor output_gradient(const Around& around, bool repeatable) const;
  void backward(at::Tensor gradient, const Around& around, bool repeatable);
  void backward_in_graph(at::Tensor gradient, const Around& around);

  const Workload& workload_;
  device::Stream stream_;
  device::StreamGuard guard_;
  models::Model model_;
  pipeline::FlatParameters parameters_;
  nn::LossFunction loss_;
  std::unique_ptr<nn::ReplicaSum> replicas_;
  nn::ForwardContext context_;
  std::vector<nn::TransformedWeights> transformed_;  // [layer]
  bool keeps_transformed_ = true;
  std::map<std::int64_t, at::Tensor> inputs_;  // by samples
  at::Tensor targets_;
  std::function<void(Part part, std::size_t layer)> after_;
  std::deque<Run> runs_;
};

}  // namespace sluice::measure
