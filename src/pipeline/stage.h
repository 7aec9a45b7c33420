// stage: consecutive layers of one replica on one device; runs the parts of one micro-batch's work: forward, the loss,
// backward, and a weight gradient that was deferred.
// Not here: when to run what (schedule), how tensors travel (pipeline/executor.h).
// Recompute: forward keeps the input of every layer only; backward runs each layer forward again, under the same
// context, and then backward, last layer first (Chen et al. 2016, arXiv:1604.06174, with a layer as the segment). The
// gradient of the loss is computed at once, so that neither the logits nor the loss's graph is kept.
// Threads: one thread at a time. Up to as many micro-batches as the schedule keeps in flight may be between forward and
// backward; each holds its autograd graph, or its layers' inputs, until its backward; its output is the next stage's to
// keep.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include "core/action_marks.h"
#include "core/ids.h"
#include "device/device.h"
#include "nn/layer.h"
#include "nn/loss.h"
#include "nn/transformed_weights.h"
#include "nn/weight_queue.h"
#include "pipeline/flat_parameters.h"
#include "pipeline/live_bytes.h"
#include "pipeline/micro_batch.h"

namespace sluice::pipeline {

using GradientReady = std::function<void(ParamId)>;

// nn::TransformedWeights::Charge: what this thread allocates on its device counts as transformed weights.
[[nodiscard]] std::shared_ptr<void> charge_transformed_weights();

// How a stage is to run one micro-batch.
struct StagePass {
  nn::ForwardContext context;
  bool needs_input_gradient = true;  // false where no stage before it trains anything
  bool has_loss = false;             // the last stage, in training
  bool splits_backward = false;      // backward() leaves the weight gradients to weight_gradient()
  bool keeps_transformed = false;    // transformed weights, until end_pass(): other micro-batches come
  ActionMarks* marks = nullptr;      // who is told of each layer
};

// What the gradient of the loss begins with: a number, or where that lies on the device ([1], float64).
struct GradientScale {
  double number = 1;
  at::Tensor in_memory = {};  // undefined: the number

  [[nodiscard]] at::Tensor like(const at::Tensor& loss) const;
};

class Stage {
 public:
  struct Options {
    bool recompute = false;
  };

  // `shared`: the same stage of another replica in the same memory, whose parameter values this one uses; may be null.
  Stage(StageId id, std::vector<std::unique_ptr<nn::Layer>> layers, ParamId first_param, device::Device device,
        const Stage* shared, Options options);
  Stage(StageId id, std::vector<std::unique_ptr<nn::Layer>> layers, ParamId first_param, device::Device device,
        const Stage* shared)
      : Stage(id, std::move(layers), first_param, device, shared, Options{}) {}

  [[nodiscard]] StageId id() const { return id_; }
  [[nodiscard]] bool recomputes() const { return options_.recompute; }
  [[nodiscard]] const std::vector<std::unique_ptr<nn::Layer>>& layers() const { return layers_; }
  [[nodiscard]] FlatParameters& parameters() { return *parameters_; }
  [[nodiscard]] const FlatParameters& parameters() const { return *parameters_; }

  // The output without its graph. In training (context.training) what backward() needs is kept.
  [[nodiscard]] at::Tensor forward(MicroBatchId micro_batch, const at::Tensor& input, const StagePass& pass);
  // Last stage only, in training, once after forward(): the summed loss (a scalar without graph). The gradient of
  // backward() starts from it, scaled by `gradient_scale`.
  [[nodiscard]] at::Tensor apply_loss(MicroBatchId micro_batch, const at::Tensor& targets, const nn::LossFunction& loss,
                                      const GradientScale& gradient_scale);
  // Adds to the parameters' gradients. `output_gradient` is undefined on the last stage. Returns the gradient of the
  // input, or an undefined tensor where none is needed. `on_ready`, when set, is called for each parameter that has
  // received its share: pass it with the last backward of a step, where that is a whole one.
  [[nodiscard]] at::Tensor backward(MicroBatchId micro_batch, const at::Tensor& output_gradient,
                                    const GradientReady& on_ready);
  // For a micro-batch without samples here: the part of this stage's layers in what replicas exchange (batch-norm in
  // mode kSync), in the order of forward() and of backward().
  void take_part_in_forward(const StagePass& pass) const;
  void take_part_in_backward(const StagePass& pass) const;
  // After the backward() of a pass that splits it: adds the weight gradients that were deferred. `on_ready`, when set,
  // is called for each trained parameter that backward() deferred, as soon as it has its share, and at once for the
  // others: pass it with the last weight gradient of a step, where no backward follows it.
  void weight_gradient(MicroBatchId micro_batch, const GradientReady& on_ready);

  // Before the first backward of a pass, and after its last, or where it has none (flat_parameters.h).
  void begin_gradients() { parameters_->begin_gradients(); }
  void begin_gradients_in_place() { parameters_->begin_gradients_in_place(); }
  void settle_gradients() { parameters_->settle_gradients(); }
  // Of all that are trained, as their backward reports them: the last ones first.
  void report_gradients(const GradientReady& on_ready) const;
  // Some parameter of it requires a gradient.
  [[nodiscard]] bool is_trained() const;
  // Of all its layers.
  [[nodiscard]] std::vector<nn::BatchNorm2d*> batch_norms() const;
  // Forgets micro-batches that are between forward and backward, or whose weight gradients are deferred (a failed
  // step).
  void drop_in_flight();
  // Frees what is kept for the micro-batches of one pass. Requires: nothing in flight; called before weights change.
  void end_pass() { transformed_weights_.clear(); }
  [[nodiscard]] int in_flight() const { return static_cast<int>(in_flight_.size()); }
  // What it does at this moment, or did when it failed and until its next call, on a micro-batch: "forward of layer1.0
  // with samples [16, 3, 32, 32]". Of a whole backward its layers are named together. Empty: nothing.
  [[nodiscard]] std::string work_on(const MicroBatch& samples) const;
  [[nodiscard]] int deferred() const { return static_cast<int>(deferred_.size()); }
  // From now on, of passes that begin now; it costs a little time. Requires: nothing in flight.
  LiveBytes& count_live_bytes();

 private:
  // Between forward and backward.
  struct InFlight {
    StagePass pass;
    at::Tensor input;                // a leaf, where its gradient is needed
    std::vector<at::Tensor> inputs;  // of every layer, where the stage recomputes; undefined before the first trained
    at::Tensor logits;               // of the last stage, until the loss
    torch::autograd::Edge root;      // where backward begins; none where it recomputes or nothing is trained
    at::Tensor root_gradient;        // what it begins with on the last stage
    std::unique_ptr<nn::WeightGradQueue> queue;
    std::unique_ptr<MicroBatchLiveBytes> live;  // null unless live bytes are counted
    std::vector<LiveBytes::Hold> holds;         // of the tensors above
  };
  // Between I and W.
  struct Deferred {
    std::unique_ptr<nn::WeightGradQueue> queue;
    std::vector<LiveBytes::Hold> holds;
  };

  // What it is at, for whoever reports a failure.
  struct Work {
    const char* what = nullptr;        // null: nothing
    const nn::Layer* layer = nullptr;  // null: all of them
  };

  [[nodiscard]] at::Tensor run_layer(std::size_t layer, const at::Tensor& input, const nn::ForwardContext& context,
                                     ActionMarks* marks);
  void install_gradient_hooks();
  // Layers before this one need no backward.
  [[nodiscard]] std::size_t first_trained_layer(const StagePass& pass) const;
  [[nodiscard]] at::Tensor forward_keeping_graph(const at::Tensor& input, InFlight& state);
  [[nodiscard]] at::Tensor forward_keeping_inputs(const at::Tensor& input, InFlight& state);
  [[nodiscard]] at::Tensor backward_through_graph(InFlight& state, const at::Tensor& output_gradient);
  [[nodiscard]] at::Tensor backward_recomputing(InFlight& state, at::Tensor gradient);

  StageId id_;
  Options options_;
  std::vector<std::unique_ptr<nn::Layer>> layers_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<LiveBytes> live_bytes_;
  nn::TransformedWeights transformed_weights_{charge_transformed_weights};
  std::unordered_map<int, InFlight> in_flight_;  // by micro-batch
  std::unordered_map<int, Deferred> deferred_;   // by micro-batch
  Work work_;
  // What the hooks on the parameters call; set only during the last backward of a step.
  std::shared_ptr<GradientReady> on_ready_ = std::make_shared<GradientReady>();
};

}  // namespace sluice::pipeline
