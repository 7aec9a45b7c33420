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

bool has_graph(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

bool carries_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.is_floating_point(); }

// Without their graph; those that carry a gradient are leaves of a new one, if it is needed.
Tensors leaves_of(Tensors tensors, bool need_gradients) {
  for (at::Tensor& tensor : tensors) {
    if (carries_gradient(tensor)) tensor = tensor.detach().requires_grad_(need_gradients);
  }
  return tensors;
}

// Takes the gradients out of leaves. A leaf must not keep its own, because a deferred weight gradient may hold that
// leaf.
Tensors take_gradients(const Tensors& leaves) {
  Tensors gradients;
  for (const at::Tensor& leaf : leaves) {
    gradients.push_back(has_graph(leaf) ? std::exchange(leaf.mutable_grad(), at::Tensor()) : at::Tensor());
  }
  return gradients;
}

// The positions of tensors in their graph, invalid for one without a graph.
std::vector<torch::autograd::Edge> roots_of(const Tensors& outputs) {
  std::vector<torch::autograd::Edge> roots;
  for (const at::Tensor& output : outputs) {
    roots.push_back(has_graph(output) ? torch::autograd::impl::gradient_edge(output) : torch::autograd::Edge());
  }
  return roots;
}

// torch::autograd::backward() without the outputs themselves, of which only the positions in the graph are kept.
void run_backward(const std::vector<torch::autograd::Edge>& roots, const Tensors& gradients) {
  check(roots.size() == gradients.size(), "a gradient, possibly undefined, for every tensor of a border");
  torch::autograd::edge_list used;
  torch::autograd::variable_list their;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].is_valid() || !gradients[i].defined()) continue;
    used.push_back(roots[i]);
    their.push_back(gradients[i]);
  }
  if (used.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(used, their, /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

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

// Called by autograd once per backward, after it has added to the parameter's gradient.
class Stage::ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  // `parameters` must outlive the leaf's backward.
  ReadyHook(FlatParameters& parameters, std::size_t entry, std::shared_ptr<const HookWork> work)
      : parameters_(parameters), entry_(entry), work_(std::move(work)) {}

  void operator()(const torch::autograd::Variable&) override {
    if (work_->settles) parameters_.settle_gradient(entry_);
    if (work_->on_ready) work_->on_ready(parameters_.entries()[entry_].id);
  }

 private:
  FlatParameters& parameters_;
  std::size_t entry_;
  std::shared_ptr<const HookWork> work_;
};

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
                                                   std::make_unique<ReadyHook>(*parameters_, i, hook_work_));
  }
}

std::string Stage::work_on(const MicroBatch& samples) const {
  if (work_.what == nullptr) return {};
  const auto name_of_layers = [&] {
    if (work_.layer != nullptr) return work_.layer->name();
    const std::string first = layers_.front()->name();
    return layers_.size() == 1 ? first : concat(first, " .. ", layers_.back()->name());
  };
  const std::string shape = samples.inputs.empty() ? "" : concat(" with samples ", samples.inputs.front().sizes());
  return concat(work_.what, " of ", name_of_layers(), shape);
}

Tensors Stage::run_layer(std::size_t layer, const Tensors& inputs, const nn::ForwardContext& context,
                         ActionMarks* marks, PassWatch* watch) {
  work_.layer = layers_[layer].get();
  const LayerMark mark(marks, work_.layer->name());
  Tensors outputs = layers_[layer]->forward_all(inputs, context);
  if (watch != nullptr) watch->on_outputs(context.micro_batch, work_.layer->name(), outputs);
  return outputs;
}

Tensors Stage::forward(MicroBatchId micro_batch, const Tensors& inputs, const StagePass& pass) {
  work_ = {.what = "forward"};
  InFlight state{.pass = pass};
  if (pass.keeps_transformed) state.pass.context.transformed_weights = &transformed_weights_;
  if (!pass.context.training) {
    const at::NoGradGuard no_grad;
    Tensors outputs = inputs;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      outputs = run_layer(i, outputs, state.pass.context, state.pass.marks);
    work_ = {};
    return outputs;
  }
  if (pass.splits_backward) {
    state.queue = std::make_unique<nn::WeightGradQueue>();
    state.pass.context.weight_queue = state.queue.get();
  }
  if (live_bytes_) state.live = std::make_unique<MicroBatchLiveBytes>(*live_bytes_, inputs);
  Tensors outputs = options_.recompute ? forward_keeping_inputs(inputs, state) : forward_keeping_graph(inputs, state);
  if (live_bytes_) live_bytes_->end_action();
  const bool is_new = in_flight_.emplace(index(micro_batch), std::move(state)).second;
  check(is_new, concat("one forward of micro-batch ", index(micro_batch)));
  work_ = {};
  return outputs;
}

Tensors Stage::forward_keeping_graph(const Tensors& inputs, InFlight& state) {
  const at::AutoGradMode with_graph(true);
  const SavedTensorWatch watch(state.live.get());
  Tensors outputs = leaves_of(inputs, state.pass.needs_input_gradient);
  if (state.pass.needs_input_gradient) {
    state.leaves = outputs;
    if (state.live) state.live->hold_all(state.leaves, state.holds);
  }
  for (std::size_t i = 0; i < layers_.size(); ++i)
    outputs = run_layer(i, outputs, state.pass.context, state.pass.marks, state.pass.watch);
  if (state.pass.has_loss) {
    state.outputs = outputs;
  } else {
    state.roots = roots_of(outputs);
  }
  return leaves_of(std::move(outputs), /*need_gradients=*/false);
}

bool Stage::is_trained() const { return std::ranges::any_of(layers_, layer_is_trained); }

std::size_t Stage::first_trained_layer(const StagePass& pass) const {
  if (pass.needs_input_gradient) return 0;
  return static_cast<std::size_t>(std::ranges::find_if(layers_, layer_is_trained) - layers_.begin());
}

Tensors Stage::forward_keeping_inputs(const Tensors& inputs, InFlight& state) {
  const at::NoGradGuard no_grad;
  const nn::UncountedFlops first_time;  // backward() counts these FLOPs, like a stage that keeps the graph
  const std::size_t first = first_trained_layer(state.pass);
  Tensors outputs = inputs;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    state.inputs.push_back(i < first ? Tensors() : outputs);
    if (state.live) state.live->hold_all(state.inputs.back(), state.holds);
    outputs = run_layer(i, outputs, state.pass.context, state.pass.marks, state.pass.watch);
  }
  if (state.pass.has_loss) state.outputs = outputs;
  return outputs;
}

at::Tensor Stage::apply_loss(MicroBatchId micro_batch, const Tensors& targets, const LossFunction& loss,
                             const GradientScale& gradient_scale) {
  const at::AutoGradMode with_graph(true);
  work_ = {.what = "loss", .layer = layers_.back().get()};
  InFlight& state = in_flight_.at(index(micro_batch));
  const Tensors outputs = std::exchange(state.outputs, {});
  if (options_.recompute) {
    const Tensors leaves = leaves_of(outputs, /*need_gradients=*/true);
    const at::Tensor sum = loss(leaves, targets);
    torch::autograd::backward({sum}, {gradient_scale.like(sum)});
    state.root_gradients = take_gradients(leaves);
    if (state.live) state.live->hold_all(state.root_gradients, state.holds);
    if (live_bytes_) live_bytes_->end_action();
    work_ = {};
    return sum.detach();
  }
  if (state.live) state.live->leave_out(targets);
  const SavedTensorWatch watch(state.live.get());
  const at::Tensor sum = loss(outputs, targets);
  state.roots = roots_of({sum});
  state.root_gradients = {gradient_scale.like(sum)};
  if (live_bytes_) live_bytes_->end_action();
  work_ = {};
  return sum.detach();
}

Tensors Stage::backward(MicroBatchId micro_batch, const Tensors& gradients, const GradientReady& on_ready) {
  const auto found = in_flight_.find(index(micro_batch));
  check(found != in_flight_.end(), concat("a forward before the backward of micro-batch ", index(micro_batch)));
  InFlight state = std::move(found->second);
  in_flight_.erase(found);
  state.holds.clear();  // backward frees the tensors one by one
  work_ = {.what = "backward"};
  if (parameters_->has_tree()) parameters_->begin_micro_batch(state.pass.context.micro_batch);
  *hook_work_ = {.on_ready = on_ready, .settles = !(parameters_->has_tree() && state.queue)};
  Tensors input_gradients;
  try {
    input_gradients =
        options_.recompute ? backward_recomputing(state, gradients) : backward_through_graph(state, gradients);
  } catch (...) {
    *hook_work_ = {};
    throw;
  }
  *hook_work_ = {};
  if (state.queue) defer(micro_batch, state);
  parameters_->settle_gradients();  // without a tree, deferred weight gradients are added to zeros
  state = {};
  if (live_bytes_) live_bytes_->end_action();
  work_ = {};
  return input_gradients;
}

void Stage::defer(MicroBatchId micro_batch, InFlight& state) {
  Deferred deferred{.queue = std::move(state.queue), .number = state.pass.context.micro_batch};
  if (state.live) {
    for (const at::Tensor& tensor : deferred.queue->kept()) deferred.holds.push_back(state.live->hold(tensor));
  }
  for (std::size_t i = 0; parameters_->has_tree() && i < parameters_->leaves().size(); ++i) {
    if (deferred.queue->waits_for(parameters_->leaves()[i]))
      deferred.unfinished.emplace_back(i, parameters_->take_unsettled(i));
  }
  deferred_.emplace(index(micro_batch), std::move(deferred));
}

Tensors Stage::backward_through_graph(InFlight& state, const Tensors& gradients) {
  const Tensors& given = gradients.empty() ? state.root_gradients : gradients;
  if (given.empty()) return {};  // no later stage is trained behind this one
  run_backward(std::exchange(state.roots, {}), given);
  return take_gradients(state.leaves);
}

Tensors Stage::backward_recomputing(InFlight& state, Tensors gradients) {
  if (gradients.empty()) gradients = std::exchange(state.root_gradients, {});
  nn::ForwardContext again = state.pass.context;
  again.update_statistics = false;
  const at::AutoGradMode with_graph(true);
  const std::size_t first = first_trained_layer(state.pass);
  for (std::size_t i = layers_.size(); i-- > first;) {
    const Tensors leaves = leaves_of(std::exchange(state.inputs[i], {}), i > first || state.pass.needs_input_gradient);
    run_backward(roots_of(run_layer(i, leaves, again, state.pass.marks)), gradients);
    gradients = take_gradients(leaves);
  }
  return state.pass.needs_input_gradient ? gradients : Tensors();
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

void Stage::reopen(Deferred& deferred) {
  std::vector<std::size_t> entries;
  for (auto& [entry, gradient] : deferred.unfinished) {
    entries.push_back(entry);
    parameters_->leaves()[entry].mutable_grad() = std::exchange(gradient, at::Tensor());
  }
  parameters_->begin_micro_batch(deferred.number, entries);
}

void Stage::weight_gradient(MicroBatchId micro_batch, const GradientReady& on_ready) {
  const auto found = deferred_.find(index(micro_batch));
  check(found != deferred_.end(), concat("deferred weight gradients of micro-batch ", index(micro_batch)));
  nn::WeightGradQueue& queue = *found->second.queue;
  work_ = {.what = "weight gradients"};
  if (parameters_->has_tree()) reopen(found->second);
  if (on_ready) report(*parameters_, on_ready, [&](const at::Tensor& leaf) { return !queue.waits_for(leaf); });
  queue.run([&](const at::Tensor& done) {
    for (auto& [entry, gradient] : found->second.unfinished)
      if (parameters_->leaves()[entry].is_same(done)) parameters_->settle_gradient(entry);
    if (on_ready) report(*parameters_, on_ready, [&](const at::Tensor& leaf) { return leaf.is_same(done); });
  });
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
