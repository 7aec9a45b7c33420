#include "pipeline/stage.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "device/memory.h"
#include "nn/batch_norm.h"
#include "nn/flops.h"

namespace sluice::pipeline {
namespace {

// Called by autograd once per backward, after it has added to the parameter's gradient.
class ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  // `parameters` must outlive the leaf's backward.
  ReadyHook(FlatParameters& parameters, std::size_t entry, std::shared_ptr<const GradientReady> on_ready)
      : parameters_(parameters), entry_(entry), on_ready_(std::move(on_ready)) {}

  void operator()(const torch::autograd::Variable&) override {
    parameters_.settle_gradient(entry_);
    if (*on_ready_) (*on_ready_)(parameters_.entries()[entry_].id);
  }

 private:
  FlatParameters& parameters_;
  std::size_t entry_;
  std::shared_ptr<const GradientReady> on_ready_;
};

// torch::autograd::backward() without the output itself, of which only the position in the graph is kept.
void run_backward(const torch::autograd::Edge& root, const at::Tensor& gradient) {
  torch::autograd::Engine::get_default_engine().execute({root}, {gradient}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

// Takes the gradient out of a leaf. The leaf must not keep it, because a deferred weight gradient may hold that leaf.
at::Tensor take_gradient(const at::Tensor& leaf) { return std::exchange(leaf.mutable_grad(), at::Tensor()); }

void report(const FlatParameters& parameters, const GradientReady& on_ready, const auto& picks) {
  for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
    const ParameterEntry& entry = parameters.entries()[i];
    if (entry.is_trained && picks(parameters.leaves()[i])) on_ready(entry.id);
  }
}

bool layer_is_trained(const std::unique_ptr<nn::Layer>& layer) {
  return std::ranges::any_of(layer->parameters(), [](const auto* p) { return p->value.requires_grad(); });
}

}  // namespace

std::shared_ptr<void> charge_transformed_weights() {
  return std::make_shared<device::MemoryScope>(device::MemoryKind::kTransformedWeights);
}

at::Tensor GradientScale::like(const at::Tensor& loss) const {
  return in_memory.defined() ? in_memory.view(loss.sizes()).to(loss.scalar_type()) : at::full_like(loss, number);
}

Stage::Stage(StageId id, std::vector<std::unique_ptr<nn::Layer>> layers, ParamId first_param, device::Device device,
             const Stage* shared, Options options)
    : id_(id),
      options_(options),
      layers_(std::move(layers)),
      parameters_(std::make_unique<FlatParameters>(layers_, first_param, device::torch_device(device),
                                                   shared != nullptr ? shared->parameters_.get() : nullptr)) {
  install_gradient_hooks();
}

LiveBytes& Stage::count_live_bytes() {
  live_bytes_ = std::make_unique<LiveBytes>();
  live_bytes_->leave_out(parameters_->values());
  live_bytes_->leave_out(parameters_->running_statistics());
  for (const nn::Buffer* buffer : parameters_->buffers()) live_bytes_->leave_out(buffer->value);
  return *live_bytes_;
}

void Stage::install_gradient_hooks() {
  for (std::size_t i = 0; i < parameters_->entries().size(); ++i) {
    if (!parameters_->entries()[i].is_trained) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_->leaves()[i],
                                                   std::make_unique<ReadyHook>(*parameters_, i, on_ready_));
  }
}

std::string Stage::work_on(const MicroBatch& samples) const {
  if (work_.what == nullptr) return {};
  const auto name_of_layers = [&] {
    if (work_.layer != nullptr) return work_.layer->name();
    const std::string first = layers_.front()->name();
    return layers_.size() == 1 ? first : concat(first, " .. ", layers_.back()->name());
  };
  const std::string shape = samples.inputs.defined() ? concat(" with samples ", samples.inputs.sizes()) : "";
  return concat(work_.what, " of ", name_of_layers(), shape);
}

at::Tensor Stage::run_layer(std::size_t layer, const at::Tensor& input, const nn::ForwardContext& context,
                            ActionMarks* marks) {
  work_.layer = layers_[layer].get();
  const LayerMark mark(marks, work_.layer->name());
  return layers_[layer]->forward(input, context);
}

at::Tensor Stage::forward(MicroBatchId micro_batch, const at::Tensor& input, const StagePass& pass) {
  work_ = {.what = "forward"};
  InFlight state{.pass = pass};
  if (pass.keeps_transformed) state.pass.context.transformed_weights = &transformed_weights_;
  if (!pass.context.training) {
    const at::NoGradGuard no_grad;
    at::Tensor output = input;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      output = run_layer(i, output, state.pass.context, state.pass.marks);
    work_ = {};
    return output;
  }
  if (pass.splits_backward) {
    state.queue = std::make_unique<nn::WeightGradQueue>();
    state.pass.context.weight_queue = state.queue.get();
  }
  if (live_bytes_) state.live = std::make_unique<MicroBatchLiveBytes>(*live_bytes_, input);
  const at::Tensor output =
      options_.recompute ? forward_keeping_inputs(input, state) : forward_keeping_graph(input, state);
  if (live_bytes_) live_bytes_->end_action();
  const bool is_new = in_flight_.emplace(index(micro_batch), std::move(state)).second;
  check(is_new, concat("one forward of micro-batch ", index(micro_batch)));
  work_ = {};
  return output;
}

at::Tensor Stage::forward_keeping_graph(const at::Tensor& input, InFlight& state) {
  const at::AutoGradMode with_graph(true);
  const SavedTensorWatch watch(state.live.get());
  const at::Tensor leaf = input.detach().requires_grad_(state.pass.needs_input_gradient);
  if (state.pass.needs_input_gradient) {
    state.input = leaf;
    if (state.live) state.holds.push_back(state.live->hold(leaf));
  }
  at::Tensor output = leaf;
  for (std::size_t i = 0; i < layers_.size(); ++i) output = run_layer(i, output, state.pass.context, state.pass.marks);
  if (state.pass.has_loss) {
    state.logits = output;
  } else if (output.requires_grad()) {
    state.root = torch::autograd::impl::gradient_edge(output);
  }
  return output.detach();
}

bool Stage::is_trained() const { return std::ranges::any_of(layers_, layer_is_trained); }

std::size_t Stage::first_trained_layer(const StagePass& pass) const {
  if (pass.needs_input_gradient) return 0;
  return static_cast<std::size_t>(std::ranges::find_if(layers_, layer_is_trained) - layers_.begin());
}

at::Tensor Stage::forward_keeping_inputs(const at::Tensor& input, InFlight& state) {
  const at::NoGradGuard no_grad;
  const nn::UncountedFlops first_time;  // backward() counts these FLOPs, like a stage that keeps the graph
  const std::size_t first = first_trained_layer(state.pass);
  at::Tensor output = input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    state.inputs.push_back(i < first ? at::Tensor() : output);
    if (state.live) state.holds.push_back(state.live->hold(state.inputs.back()));
    output = run_layer(i, output, state.pass.context, state.pass.marks);
  }
  if (state.pass.has_loss) state.logits = output;
  return output;
}

at::Tensor Stage::apply_loss(MicroBatchId micro_batch, const at::Tensor& targets, const nn::LossFunction& loss,
                             const GradientScale& gradient_scale) {
  const at::AutoGradMode with_graph(true);
  work_ = {.what = "loss", .layer = layers_.back().get()};
  InFlight& state = in_flight_.at(index(micro_batch));
  const at::Tensor logits = std::exchange(state.logits, {});
  if (options_.recompute) {
    const at::Tensor leaf = logits.detach().requires_grad_();
    const at::Tensor sum = loss(leaf, targets);
    torch::autograd::backward({sum}, {gradient_scale.like(sum)});
    state.root_gradient = take_gradient(leaf);
    if (state.live) state.holds.push_back(state.live->hold(state.root_gradient));
    if (live_bytes_) live_bytes_->end_action();
    work_ = {};
    return sum.detach();
  }
  if (state.live) state.live->leave_out(targets);
  const SavedTensorWatch watch(state.live.get());
  const at::Tensor sum = loss(logits, targets);
  if (sum.requires_grad()) state.root = torch::autograd::impl::gradient_edge(sum);
  state.root_gradient = gradient_scale.like(sum);
  if (live_bytes_) live_bytes_->end_action();
  work_ = {};
  return sum.detach();
}

at::Tensor Stage::backward(MicroBatchId micro_batch, const at::Tensor& output_gradient, const GradientReady& on_ready) {
  const auto found = in_flight_.find(index(micro_batch));
  check(found != in_flight_.end(), concat("a forward before the backward of micro-batch ", index(micro_batch)));
  InFlight state = std::move(found->second);
  in_flight_.erase(found);
  state.holds.clear();  // backward frees the tensors one by one
  work_ = {.what = "backward"};
  *on_ready_ = on_ready;
  at::Tensor input_gradient;
  try {
    input_gradient = options_.recompute ? backward_recomputing(state, output_gradient)
                                        : backward_through_graph(state, output_gradient);
  } catch (...) {
    *on_ready_ = nullptr;
    throw;
  }
  *on_ready_ = nullptr;
  parameters_->settle_gradients();  // deferred weight gradients are added to zeros
  if (state.queue) {
    Deferred deferred{.queue = std::move(state.queue)};
    if (state.live) {
      for (const at::Tensor& tensor : deferred.queue->kept()) deferred.holds.push_back(state.live->hold(tensor));
    }
    deferred_.emplace(index(micro_batch), std::move(deferred));
  }
  state = {};
  if (live_bytes_) live_bytes_->end_action();
  work_ = {};
  return input_gradient;
}

at::Tensor Stage::backward_through_graph(InFlight& state, const at::Tensor& output_gradient) {
  if (!state.root.is_valid()) return {};  // the stage is not trained
  run_backward(std::exchange(state.root, {}), output_gradient.defined() ? output_gradient : state.root_gradient);
  return state.input.defined() ? take_gradient(state.input) : at::Tensor();
}

at::Tensor Stage::backward_recomputing(InFlight& state, at::Tensor gradient) {
  if (!gradient.defined()) gradient = std::exchange(state.root_gradient, {});
  nn::ForwardContext again = state.pass.context;
  again.update_statistics = false;
  const at::AutoGradMode with_graph(true);
  const std::size_t first = first_trained_layer(state.pass);
  for (std::size_t i = layers_.size(); i-- > first;) {
    const at::Tensor leaf =
        std::exchange(state.inputs[i], {}).detach().requires_grad_(i > first || state.pass.needs_input_gradient);
    const at::Tensor output = run_layer(i, leaf, again, state.pass.marks);
    torch::autograd::backward({output}, {gradient});
    gradient = take_gradient(leaf);
  }
  return state.pass.needs_input_gradient ? gradient : at::Tensor();
}

void Stage::take_part_in_forward(const StagePass& pass) const {
  for (nn::BatchNorm2d* norm : batch_norms()) norm->take_part_in_forward(pass.context);
}

void Stage::take_part_in_backward(const StagePass& pass) const {
  nn::ForwardContext again = pass.context;
  again.update_statistics = false;
  for (std::size_t i = layers_.size(); i-- > first_trained_layer(pass);) {
    const std::vector<nn::BatchNorm2d*> norms = layers_[i]->batch_norms();
    if (options_.recompute) {
      for (nn::BatchNorm2d* norm : norms) norm->take_part_in_forward(again);
    }
    for (nn::BatchNorm2d* norm : norms | std::views::reverse) norm->take_part_in_backward(again);
  }
}

void Stage::weight_gradient(MicroBatchId micro_batch, const GradientReady& on_ready) {
  const auto found = deferred_.find(index(micro_batch));
  check(found != deferred_.end(), concat("deferred weight gradients of micro-batch ", index(micro_batch)));
  nn::WeightGradQueue& queue = *found->second.queue;
  work_ = {.what = "weight gradients"};
  if (on_ready) {
    report(*parameters_, on_ready, [&](const at::Tensor& leaf) { return !queue.waits_for(leaf); });
    queue.run([&](const at::Tensor& done) {
      report(*parameters_, on_ready, [&](const at::Tensor& leaf) { return leaf.is_same(done); });
    });
  } else {
    queue.run();
  }
  deferred_.erase(found);
  work_ = {};
}

void Stage::report_gradients(const GradientReady& on_ready) const {
  for (const ParameterEntry& entry : parameters_->entries() | std::views::reverse) {
    if (entry.is_trained) on_ready(entry.id);
  }
}

void Stage::drop_in_flight() {
  work_ = {};
  in_flight_.clear();
  deferred_.clear();
  end_pass();
  for (nn::BatchNorm2d* norm : batch_norms()) static_cast<void>(norm->collect());  // discards deferred statistics
}

std::vector<nn::BatchNorm2d*> Stage::batch_norms() const {
  std::vector<nn::BatchNorm2d*> norms;
  for (const auto& layer : layers_) {
    for (nn::BatchNorm2d* norm : layer->batch_norms()) norms.push_back(norm);
  }
  return norms;
}

}  // namespace sluice::pipeline
