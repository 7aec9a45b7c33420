#include "pipeline/stage.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "core/check.h"
#include "core/concat.h"

namespace sluice::pipeline {
namespace {

// Called by autograd once per backward, after it has added to the parameter's gradient.
class ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(ParamId param, std::shared_ptr<const GradientReady> on_ready)
      : param_(param), on_ready_(std::move(on_ready)) {}

  void operator()(const torch::autograd::Variable&) override {
    if (*on_ready_) (*on_ready_)(param_);
  }

 private:
  ParamId param_;
  std::shared_ptr<const GradientReady> on_ready_;
};

std::vector<nn::Layer*> pointers(const std::vector<std::unique_ptr<nn::Layer>>& layers) {
  std::vector<nn::Layer*> result;
  for (const auto& layer : layers) result.push_back(layer.get());
  return result;
}

}  // namespace

Stage::Stage(StageId id, std::vector<std::unique_ptr<nn::Layer>> layers, ParamId first_param, device::Device device,
             const Stage* shared)
    : id_(id),
      layers_(std::move(layers)),
      parameters_(std::make_unique<FlatParameters>(pointers(layers_), first_param, device::torch_device(device),
                                                   shared != nullptr ? shared->parameters_.get() : nullptr)) {
  install_gradient_hooks();
}

void Stage::install_gradient_hooks() {
  for (std::size_t i = 0; i < parameters_->slots().size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_->leaves()[i],
                                                   std::make_unique<ReadyHook>(parameters_->slots()[i].id, on_ready_));
  }
}

at::Tensor Stage::forward(MicroBatchId micro_batch, const at::Tensor& input, const nn::ForwardContext& context,
                          bool needs_input_gradient) {
  const at::AutoGradMode grad_mode(context.training);
  const at::Tensor leaf = input.detach().requires_grad_(context.training && needs_input_gradient);
  at::Tensor output = leaf;
  for (const auto& layer : layers_) output = layer->forward(output, context);
  const bool is_new = in_flight_.insert_or_assign(index(micro_batch), InFlight{leaf, output}).second;
  check(is_new, concat("micro-batch ", index(micro_batch), " was run forward twice"));
  const at::Tensor detached = output.detach();
  if (!context.training) in_flight_.erase(index(micro_batch));
  return detached;
}

at::Tensor Stage::apply_loss(MicroBatchId micro_batch, const at::Tensor& targets, const LossFunction& loss,
                             double gradient_scale) {
  const at::AutoGradMode grad_mode(true);
  InFlight& state = in_flight_.at(index(micro_batch));
  state.root = loss(state.root, targets);
  state.gradient_scale = gradient_scale;
  return state.root.detach();
}

at::Tensor Stage::backward(MicroBatchId micro_batch, const at::Tensor& output_gradient, const GradientReady& on_ready) {
  const auto found = in_flight_.find(index(micro_batch));
  check(found != in_flight_.end(),
        concat("backward of micro-batch ", index(micro_batch), ", which was not run forward"));
  const InFlight state = std::move(found->second);
  in_flight_.erase(found);
  // Nothing to train in front of a root without a graph (all parameters of the stage are absent).
  if (!state.root.requires_grad()) return {};
  const at::Tensor gradient =
      output_gradient.defined() ? output_gradient : at::full_like(state.root, state.gradient_scale);
  *on_ready_ = on_ready;
  try {
    torch::autograd::backward({state.root}, {gradient});
  } catch (...) {
    *on_ready_ = nullptr;
    throw;
  }
  *on_ready_ = nullptr;
  return state.input.grad();
}

void Stage::zero_gradients() { parameters_->gradients().zero_(); }

std::vector<nn::BatchNorm2d*> Stage::batch_norms() const {
  std::vector<nn::BatchNorm2d*> norms;
  for (const auto& layer : layers_) {
    for (nn::BatchNorm2d* norm : layer->batch_norms()) norms.push_back(norm);
  }
  return norms;
}

}  // namespace sluice::pipeline
