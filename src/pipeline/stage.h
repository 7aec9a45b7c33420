// stage: consecutive layers of one replica on one device; runs the forward and backward of one micro-batch at a time.
// Not here: when to run what (schedule), how tensors travel (pipeline/executor.h).
// Threads: one thread at a time. Up to as many micro-batches as the schedule keeps in flight may be between forward and
// backward; each holds its autograd graph until its backward.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/ids.h"
#include "device/device.h"
#include "nn/layer.h"
#include "pipeline/flat_parameters.h"

namespace sluice::pipeline {

// The loss of a micro-batch: summed over its samples, so that micro-batches of unequal size weigh every sample equally.
using LossFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& targets)>;

using GradientReady = std::function<void(ParamId)>;

class Stage {
 public:
  // `shared`: the same stage of another replica in the same memory, whose parameter values this one uses; may be null.
  Stage(StageId id, std::vector<std::unique_ptr<nn::Layer>> layers, ParamId first_param, device::Device device,
        const Stage* shared);

  [[nodiscard]] StageId id() const { return id_; }
  [[nodiscard]] const std::vector<std::unique_ptr<nn::Layer>>& layers() const { return layers_; }
  [[nodiscard]] FlatParameters& parameters() { return *parameters_; }
  [[nodiscard]] const FlatParameters& parameters() const { return *parameters_; }

  // The output without its graph, which is kept for backward() when context.training.
  // `needs_input_gradient`: false for the first stage.
  [[nodiscard]] at::Tensor forward(MicroBatchId micro_batch, const at::Tensor& input, const nn::ForwardContext& context,
                                   bool needs_input_gradient);
  // Last stage only, in training, after forward(): the summed loss (a scalar without graph). The gradient of backward()
  // starts from it, scaled by `gradient_scale`.
  [[nodiscard]] at::Tensor apply_loss(MicroBatchId micro_batch, const at::Tensor& targets, const LossFunction& loss,
                                      double gradient_scale);
  // Adds to the parameters' gradients. `output_gradient` is undefined on the last stage. Returns the gradient of the
  // input, or an undefined tensor where none is needed. `on_ready`, when set, is called for each parameter that has
  // received its share: pass it with the last backward of a step.
  [[nodiscard]] at::Tensor backward(MicroBatchId micro_batch, const at::Tensor& output_gradient,
                                    const GradientReady& on_ready);

  void zero_gradients();
  // Of all its layers.
  [[nodiscard]] std::vector<nn::BatchNorm2d*> batch_norms() const;
  // Forgets micro-batches that are between forward and backward (a failed step).
  void drop_in_flight() { in_flight_.clear(); }
  [[nodiscard]] int in_flight() const { return static_cast<int>(in_flight_.size()); }

 private:
  struct InFlight {
    at::Tensor input;           // a leaf
    at::Tensor root;            // output, or the loss on the last stage
    double gradient_scale = 1;  // of a loss
  };

  void install_gradient_hooks();

  StageId id_;
  std::vector<std::unique_ptr<nn::Layer>> layers_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unordered_map<int, InFlight> in_flight_;
  // What the hooks on the parameters call; set only during the last backward of a step.
  std::shared_ptr<GradientReady> on_ready_ = std::make_shared<GradientReady>();
};

}  // namespace sluice::pipeline
