// stage: consecutive layers of one replica on one device. It runs forward, loss, backward and deferred weight gradient
// of micro-batches.
// Recompute: forward keeps only the input of every layer. Backward runs each layer forward again, then backward, last
// layer first (Chen et al. 2016, arXiv:1604.06174). The gradient of the loss is computed at once, so that neither the
// logits nor the graph of the loss is kept.
// Threads: one at a time. The schedule bounds how many micro-batches keep their graphs, or layers' inputs, until
// backward.
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
#include "nn/transformed_weights.h"
#include "nn/weight_queue.h"
#include "pipeline/flat_parameters.h"
#include "pipeline/live_bytes.h"
#include "pipeline/micro_batch.h"
#include "pipeline/pass_watch.h"

namespace sluice::pipeline {

using GradientReady = std::function<void(ParamId)>;
// The sum over a micro-batch's targets, a scalar. outputs: of the last layer.
using LossFunction = std::function<at::Tensor(const Tensors& outputs, const Tensors& targets)>;

// nn::TransformedWeights::Charge: allocations of this thread on its device count as transformed weights.
[[nodiscard]] std::shared_ptr<void> charge_transformed_weights();

struct StagePass {
  nn::ForwardContext context;
  bool needs_input_gradient = true;  // false if no earlier stage is trained
  bool has_loss = false;             // the last stage, in training
  bool splits_backward = false;      // backward() defers the weight gradients to weight_gradient()
  bool keeps_transformed = false;    // keeps transformed weights until end_pass(), for other micro-batches
  ActionMarks* marks = nullptr;      // notified of each layer; may be null
  PassWatch* watch = nullptr;        // notified of each layer's outputs in forward(); may be null
};

// The gradient that backward starts with at the loss: a number, or its address on the device ([1], float64).
struct GradientScale {
  double number = 1;
  at::Tensor in_memory = {};  // undefined: use `number`

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

  // Returns the outputs without their graph. In training (context.training), keeps what backward() needs.
  [[nodiscard]] Tensors forward(MicroBatchId micro_batch, const Tensors& inputs, const StagePass& pass);
  // For the last stage in training, after forward(). Returns the summed loss (a scalar without graph).
  [[nodiscard]] at::Tensor apply_loss(MicroBatchId micro_batch, const Tensors& targets, const LossFunction& loss,
                                      const GradientScale& gradient_scale);
  // Adds to the parameters' gradients. `gradients`: of the outputs; empty on the last stage. Returns those of the
  // inputs. A gradient is undefined if its tensor needs none. `on_ready`, if set, is called for each parameter with its
  // share: for a step's last backward.
  [[nodiscard]] Tensors backward(MicroBatchId micro_batch, const Tensors& gradients, const GradientReady& on_ready);
  // For a micro-batch without samples: takes part in exchanges between replicas (synchronised batch-norm).
  void take_part_in_forward(const StagePass& pass) const;
  void take_part_in_backward(const StagePass& pass) const;
  // Adds the weight gradients that a split backward() deferred. `on_ready`, if set, is called for each deferred
  // parameter with its share, and at once for the other trained ones: for a step's last weight gradient.
  void weight_gradient(MicroBatchId micro_batch, const GradientReady& on_ready);

  // Call one of the first three before the first backward of a pass. Call settle_gradients() after the last backward,
  // and also in a pass without backward (flat_parameters.h).
  void begin_gradients() { parameters_->begin_gradients(); }
  // begin_gradients() for sums in the order of a tree, in passes whose micro-batches are numbered
  // (nn::ForwardContext::micro_batch).
  void begin_gradient_tree(const TreePart& part, PassWatch* watch = nullptr) {
    parameters_->begin_gradient_tree(part, watch);
  }
  void begin_gradients_in_place() { parameters_->begin_gradients_in_place(); }
  void settle_gradients() { parameters_->settle_gradients(); }
  // Reports all trained parameters in the order of their backward: the last ones first.
  void report_gradients(const GradientReady& on_ready) const;
  [[nodiscard]] bool is_trained() const;
  [[nodiscard]] std::vector<nn::BatchNorm2d*> batch_norms() const;
  void drop_in_flight();
  // Frees what is kept for the micro-batches of one pass. Requires: nothing in flight. Call before weights change.
  void end_pass() { transformed_weights_.clear(); }
  [[nodiscard]] int in_flight() const { return static_cast<int>(in_flight_.size()); }
  // Describes the current work, or after a failure the failed work: "forward of layer1.0 with samples [16, 3, 32, 32]".
  [[nodiscard]] std::string work_on(const MicroBatch& samples) const;
  [[nodiscard]] int deferred() const { return static_cast<int>(deferred_.size()); }
  // Counts live bytes of passes that begin after this call; costs a little time. Requires: nothing in flight.
  LiveBytes& count_live_bytes();

 private:
  struct InFlight {
    StagePass pass;
    Tensors leaves;                            // the inputs, if gradients of them are needed
    std::vector<Tensors> inputs;               // recomputation: of every layer; empty before the first trained one
    Tensors outputs;                           // of the last stage, until the loss
    std::vector<torch::autograd::Edge> roots;  // where backward begins; empty with recomputation
    Tensors root_gradients;                    // on the last stage
    std::unique_ptr<nn::WeightGradQueue> queue;
    std::unique_ptr<MicroBatchLiveBytes> live;  // null unless live bytes are counted
    std::vector<LiveBytes::Hold> holds;         // for the tensors above
  };
  struct Deferred {
    std::unique_ptr<nn::WeightGradQueue> queue;
    std::vector<LiveBytes::Hold> holds;
    std::int64_t number = -1;  // nn::ForwardContext::micro_batch
    // With a tree, [entry]: what backward() gave a parameter whose gradient weight_gradient() completes.
    std::vector<std::pair<std::size_t, at::Tensor>> unfinished;
  };

  struct HookWork {
    GradientReady on_ready;
    bool settles = true;  // false: backward() settles the gradients when it knows which are complete
  };
  class ReadyHook;

  struct Work {
    const char* what = nullptr;        // null: no work
    const nn::Layer* layer = nullptr;  // null: all layers
  };

  [[nodiscard]] Tensors run_layer(std::size_t layer, const Tensors& inputs, const nn::ForwardContext& context,
                                  ActionMarks* marks, PassWatch* watch = nullptr);
  void install_gradient_hooks();
  // Layers before this one need no backward.
  [[nodiscard]] std::size_t first_trained_layer(const StagePass& pass) const;
  [[nodiscard]] Tensors forward_keeping_graph(const Tensors& inputs, InFlight& state);
  [[nodiscard]] Tensors forward_keeping_inputs(const Tensors& inputs, InFlight& state);
  [[nodiscard]] static Tensors backward_through_graph(InFlight& state, const Tensors& gradients);
  [[nodiscard]] Tensors backward_recomputing(InFlight& state, Tensors gradients);
  void defer(MicroBatchId micro_batch, InFlight& state);
  // Begins the deferred part of a micro-batch whose gradients are added in a tree.
  void reopen(Deferred& deferred);

  StageId id_;
  Options options_;
  std::vector<std::unique_ptr<nn::Layer>> layers_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<LiveBytes> live_bytes_;
  nn::TransformedWeights transformed_weights_{charge_transformed_weights};
  std::unordered_map<int, InFlight> in_flight_;  // by micro-batch
  std::unordered_map<int, Deferred> deferred_;   // by micro-batch
  Work work_;
  // What the hooks on the parameters do; `on_ready` is set only during the last backward of a step.
  std::shared_ptr<HookWork> hook_work_ = std::make_shared<HookWork>();
};

}  // namespace sluice::pipeline
