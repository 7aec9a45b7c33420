#include "measure/layer_bench.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/csrc/autograd/variable.h>

#include "core/ids.h"

namespace sluice::measure {
namespace {

class OwnShare final : public nn::ReplicaSum {
 public:
  [[nodiscard]] at::Tensor sum(const at::Tensor& own) override { return own.clone(); }
};

// The first node of a layer's backward; it gives autograd the only reference to the gradient.
class HandOver final : public torch::autograd::Node {
 public:
  HandOver(at::Tensor gradient, const at::Tensor& seed, torch::autograd::Edge layer) : gradient_(std::move(gradient)) {
    add_input_metadata(seed);
    add_next_edge(std::move(layer));
  }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    return {std::exchange(gradient_, {})};
  }

 private:
  at::Tensor gradient_;
};

// The node in front of a layer: takes the input's gradient as the previous layer receives it. A stage's first layer has
// a leaf instead, which copies a gradient of another layout; memory for this copy is allocated, too.
class TakeGradient final : public torch::autograd::Node {
 public:
  static void before(at::Tensor& input, at::Tensor& gradient) {
    torch::autograd::create_gradient_edge(input, std::make_shared<TakeGradient>(input.detach(), gradient));
  }
  TakeGradient(at::Tensor input, at::Tensor& gradient) : input_(std::move(input)), gradient_(gradient) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    gradient_ = std::exchange(gradients.at(0), {});
    if (!torch::autograd::utils::obeys_layout_contract(gradient_, input_)) (void)at::empty_like(input_);
    return {};
  }

 private:
  at::Tensor input_;
  at::Tensor& gradient_;
};

// A second backward would accumulate, which takes one more kernel.
void forget_gradient(const at::Tensor& leaf) {
  if (leaf.requires_grad()) leaf.mutable_grad() = at::Tensor();
}

}  // namespace

LayerBench::LayerBench(const Workload& workload)
    : workload_(workload),
      stream_(device::Stream::make(workload.device)),
      guard_(stream_),
      model_(models::make_model(workload.model)),
      parameters_(model_.layers, ParamId{0}, device::torch_device(workload.device), nullptr),
      transformed_(model_.layers.size()) {
  context_.training = true;
  context_.is_measurement = true;
  context_.numerics = workload.numerics;
  context_.seed = workload.model.seed;
  if (context_.numerics.batch_norm == nn::BatchNormMode::kSync && workload.replicas > 1)
    replicas_ = std::make_unique<OwnShare>();
  context_.replicas = replicas_.get();
}

void LayerBench::forget_transformed() {
  for (nn::TransformedWeights& of_layer : transformed_) of_layer.clear();
}

LayerBench::Around LayerBench::watched(const Around& around) const {
  return [this, &around](Part part, std::size_t layer, const std::function<void()>& work) {
    around(part, layer, work);
    if (after_) after_(part, layer);
  };
}

void LayerBench::run(std::int64_t samples, bool defers_weights, const Around& around, Backward how) {
  runs_.clear();
  forward(samples, defers_weights, watched(around), how);
  at::Tensor gradient = output_gradient(watched(around), /*repeatable=*/false);
  if (how == Backward::kInGraph) return backward_in_graph(std::move(gradient), watched(around));
  backward(std::move(gradient), watched(around), /*repeatable=*/false);
}

void LayerBench::run_repeatably(std::int64_t samples, const Around& around) {
  runs_.clear();
  forward(samples, /*defers_weights=*/true, watched(around), Backward::kHeld);
  backward(output_gradient(watched(around), /*repeatable=*/true), watched(around), /*repeatable=*/true);
}

const at::Tensor& LayerBench::input_of(std::int64_t samples) {
  const auto [entry, is_new] = inputs_.try_emplace(samples);
  if (is_new) {
    std::vector<std::int64_t> shape = model_.sample_shape;
    shape.insert(shape.begin(), samples);
    const c10::Device device = device::torch_device(workload_.device);
    entry->second = model_.kind == SampleKind::kTokens
                        ? at::randint(0, model_.classes, shape, at::TensorOptions().dtype(at::kLong).device(device))
                        : at::randn(shape, at::TensorOptions().dtype(workload_.model.dtype).device(device));
  }
  return entry->second;
}

void LayerBench::forward(std::int64_t samples, bool defers_weights, const Around& around, Backward how) {
  context_.sample_ids = at::arange(samples, at::device(device::torch_device(workload_.device)));
  at::Tensor input = input_of(samples);
  targets_ = model_.kind == SampleKind::kTokens
                 ? input
                 : at::randint(0, model_.classes, {samples}, input.options().dtype(at::kLong));
  for (std::size_t i = 0; i < layers().size(); ++i) {
    Run& run = runs_.emplace_back();
    run.input = input.detach();
    if (i > 0 && how == Backward::kInGraph) {
      TakeGradient::before(run.input, run.input_gradient);
    } else {
      run.input.requires_grad_(i > 0);
    }
    context_.transformed_weights = keeps_transformed_ ? &transformed_[i] : nullptr;
    context_.weight_queue = defers_weights ? &run.deferred : nullptr;
    around(Part::kForward, i, [&] { run.output = layers()[i]->forward(run.input, context_); });
    input = run.output;
  }
}

at::Tensor LayerBench::output_gradient(const Around& around, bool repeatable) const {
  const std::size_t last = runs_.size() - 1;
  const at::Tensor output = runs_.back().output.detach().requires_grad_(true);
  at::Tensor sum;
  around(Part::kLoss, last, [&] { sum = workload_.task->loss({output}, {targets_}); });
  around(Part::kLossBackward, last, [&] {
    if (!repeatable) return torch::autograd::backward({std::exchange(sum, {})}, {});
    forget_gradient(output);
    torch::autograd::backward({sum}, {}, /*retain_graph=*/true);
  });
  return output.grad();
}

void LayerBench::backward(at::Tensor gradient, const Around& around, bool repeatable) {
  for (std::size_t i = runs_.size(); i-- > 0;) {
    Run& run = runs_[i];
    if (!run.output.requires_grad()) break;  // nothing to train from here to the front
    run.output_gradient = gradient;
    around(Part::kBackward, i, [&] {
      if (!repeatable) return torch::autograd::backward({std::exchange(run.output, {})}, {gradient});
      forget_gradient(run.input);
      run.deferred = {};
      torch::autograd::backward({run.output}, {gradient}, /*retain_graph=*/true);
    });
    run.output = at::Tensor();
    if (!run.deferred.empty())
      around(Part::kWeightGradient, i, [&] {
        if (!repeatable) return run.deferred.run();
        nn::WeightGradQueue copy = run.deferred;
        copy.run();
      });
    gradient = run.input.grad();
    run = {};
  }
}

void LayerBench::backward_in_graph(at::Tensor gradient, const Around& around) {
  for (std::size_t i = runs_.size(); i-- > 0;) {
    Run& run = runs_[i];
    if (!run.output.requires_grad()) break;
    const at::Tensor seed = at::zeros({1}, gradient.options());
    torch::autograd::Edge root(
        std::make_shared<HandOver>(std::exchange(gradient, {}), seed, torch::autograd::impl::gradient_edge(run.output)),
        0);
    run.output = at::Tensor();
    around(Part::kBackward, i, [&] {
      torch::autograd::Engine::get_default_engine().execute({std::exchange(root, {})}, {seed}, /*keep_graph=*/false,
                                                            /*create_graph=*/false, /*accumulate_grad=*/true);
    });
    if (!run.deferred.empty()) around(Part::kWeightGradient, i, [&] { run.deferred.run(); });
    gradient = std::exchange(run.input_gradient, {});
    run = {};
  }
}

}  // namespace sluice::measure
