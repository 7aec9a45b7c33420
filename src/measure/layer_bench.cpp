#include "measure/layer_bench.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/csrc/autograd/variable.h>

#include "core/ids.h"
#include "nn/cross_entropy.h"

namespace sluice::measure {
namespace {

bool is_masked_language_model(const models::ModelOptions& model) {
  return models::is_text(model) && models::text_head(model) == models::TextHead::kMlm;
}

class OwnShare final : public nn::ReplicaSum {
 public:
  [[nodiscard]] at::Tensor sum(const at::Tensor& own) override { return own.clone(); }
};

// The first node of a layer's backward; it gives autograd the only references to the gradients.
class HandOver final : public torch::autograd::Node {
 public:
  HandOver(nn::Tensors gradients, const at::Tensor& seed, torch::autograd::edge_list layer)
      : gradients_(std::move(gradients)) {
    add_input_metadata(seed);
    set_next_edges(std::move(layer));
  }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    return std::exchange(gradients_, {});
  }

 private:
  nn::Tensors gradients_;
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

// Layers up to the first trained one need no gradient of their input.
std::size_t first_trained(const std::vector<std::unique_ptr<nn::Layer>>& layers) {
  const auto is_trained = [](const auto& layer) {
    return std::ranges::any_of(layer->parameters(), [](const auto* p) { return p->value.requires_grad(); });
  };
  return static_cast<std::size_t>(std::ranges::find_if(layers, is_trained) - layers.begin());
}

bool carries_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.is_floating_point(); }

// A second backward would accumulate, which takes one more kernel.
void forget_gradients(const nn::Tensors& leaves) {
  for (const at::Tensor& leaf : leaves)
    if (leaf.defined() && leaf.requires_grad()) leaf.mutable_grad() = at::Tensor();
}

nn::Tensors gradients_of(const nn::Tensors& leaves) {
  nn::Tensors gradients;
  for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.defined() ? leaf.grad() : at::Tensor());
  return gradients;
}

// Where a layer's backward begins.
struct Roots {
  nn::Tensors outputs, gradients;

  // Empty if there is nothing to train from here to the front.
  static Roots of(const nn::Tensors& outputs, const nn::Tensors& gradients) {
    Roots roots;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.outputs.push_back(outputs[i]);
      roots.gradients.push_back(gradients[i]);
    }
    return roots;
  }
};

}  // namespace

LayerBench::LayerBench(const Workload& workload)
    : workload_(workload),
      stream_(device::Stream::make(workload.device)),
      guard_(stream_),
      model_(models::make_model(workload.model)),
      first_trained_(first_trained(model_.layers)),
      parameters_(model_.layers, ParamId{0}, device::torch_device(workload.device), nullptr),
      transformed_(model_.layers.size()) {
  context_.training = true;
  context_.is_measurement = true;
  context_.numerics = workload.numerics;
  context_.seed = workload.model.seed;
  if (context_.numerics.batch_norm == nn::BatchNormMode::kSync && workload.replicas > 1)
    replicas_ = std::make_unique<OwnShare>();
  context_.replicas = replicas_.get();
  use_longest(false);
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

void LayerBench::use_longest(bool longest) {
  tokens_ = longest || workload_.usual_tokens == 0 ? workload_.tokens : workload_.usual_tokens;
  inputs_.clear();
}

void LayerBench::run(std::int64_t samples, bool defers_weights, const Around& around, Backward how) {
  runs_.clear();
  forward(samples, defers_weights, watched(around), how);
  nn::Tensors gradients = output_gradients(watched(around), /*repeatable=*/false);
  if (how == Backward::kInGraph) return backward_in_graph(std::move(gradients), watched(around));
  backward(std::move(gradients), watched(around), /*repeatable=*/false);
}

void LayerBench::run_repeatably(std::int64_t samples, const Around& around) {
  runs_.clear();
  forward(samples, /*defers_weights=*/true, watched(around), Backward::kHeld);
  backward(output_gradients(watched(around), /*repeatable=*/true), watched(around), /*repeatable=*/true);
}

at::Tensor LayerBench::random(const models::TensorInfo& info, std::int64_t samples) const {
  const bool is_shorter = tokens_ > 0 && !info.sizes.empty();
  std::vector<std::int64_t> sizes = is_shorter ? std::vector{tokens_} : info.sizes;
  sizes.insert(sizes.begin(), samples);
  const auto device = at::TensorOptions().device(device::torch_device(workload_.device));
  if (info.bound == 0) return at::randn(sizes, device.dtype(workload_.model.dtype));
  const bool are_positions = info.name == "positions" || info.name == "starts" || info.name == "ends";
  const std::int64_t bound = are_positions && tokens_ > 0 ? tokens_ : info.bound;
  return at::randint(info.lowest, bound, sizes, device.dtype(at::kLong));
}

const nn::Tensors& LayerBench::inputs_of(std::int64_t samples) {
  const auto [entry, is_new] = inputs_.try_emplace(samples);
  if (!is_new) return entry->second;
  const std::vector<std::string>& given = workload_.optional_inputs;
  for (const models::TensorInfo& info : model_.inputs) {
    const bool is_given = !info.is_optional || std::ranges::find(given, info.name) != given.end();
    entry->second.push_back(is_given ? random(info, samples) : at::Tensor());
  }
  return entry->second;
}

void LayerBench::forward(std::int64_t samples, bool defers_weights, const Around& around, Backward how) {
  context_.sample_ids = at::arange(samples, at::device(device::torch_device(workload_.device)));
  nn::Tensors border = inputs_of(samples);
  targets_.clear();
  for (const models::TensorInfo& info : model_.targets) targets_.push_back(random(info, samples));
  if (is_masked_language_model(workload_.model)) {
    constexpr double kUsualShare = 0.15;  // of tokens with a target
    at::Tensor& targets = targets_.front();
    targets.masked_fill_(at::rand(targets.sizes()).to(targets.device()) > kUsualShare, nn::kNoTarget);
    if (targets.device().is_cpu()) context_.targets = targets;
  }
  for (std::size_t i = 0; i < layers().size(); ++i) {
    Run& run = runs_.emplace_back();
    run.input_gradients.resize(border.size());
    for (std::size_t j = 0; j < border.size(); ++j) {
      at::Tensor& input = run.inputs.emplace_back(border[j].defined() ? border[j].detach() : at::Tensor());
      if (i <= first_trained_ || !carries_gradient(input)) continue;
      if (how == Backward::kInGraph) {
        TakeGradient::before(input, run.input_gradients[j]);
      } else {
        input.requires_grad_(true);
      }
    }
    context_.transformed_weights = keeps_transformed_ ? &transformed_[i] : nullptr;
    context_.weight_queue = defers_weights ? &run.deferred : nullptr;
    around(Part::kForward, i, [&] { run.outputs = layers()[i]->forward_all(run.inputs, context_); });
    border = run.outputs;
  }
}

nn::Tensors LayerBench::output_gradients(const Around& around, bool repeatable) const {
  const std::size_t last = runs_.size() - 1;
  nn::Tensors outputs;
  for (const at::Tensor& output : runs_.back().outputs) {
    outputs.push_back(output.defined() ? output.detach() : output);
    if (carries_gradient(output)) outputs.back().requires_grad_(true);
  }
  at::Tensor sum;
  around(Part::kLoss, last, [&] { sum = workload_.task->loss(outputs, targets_); });
  around(Part::kLossBackward, last, [&] {
    if (!repeatable) return torch::autograd::backward({std::exchange(sum, {})}, {});
    forget_gradients(outputs);
    torch::autograd::backward({sum}, {}, /*retain_graph=*/true);
  });
  return gradients_of(outputs);
}

void LayerBench::backward(nn::Tensors gradients, const Around& around, bool repeatable) {
  for (std::size_t i = runs_.size(); i-- > 0;) {
    Run& run = runs_[i];
    Roots roots = Roots::of(run.outputs, gradients);
    if (roots.outputs.empty()) break;
    run.output_gradients = gradients;
    if (!repeatable) run.outputs.clear();
    around(Part::kBackward, i, [&] {
      if (!repeatable) return torch::autograd::backward(std::exchange(roots.outputs, {}), roots.gradients);
      forget_gradients(run.inputs);
      run.deferred = {};
      torch::autograd::backward(roots.outputs, roots.gradients, /*retain_graph=*/true);
    });
    roots = {};
    run.outputs.clear();
    if (!run.deferred.empty())
      around(Part::kWeightGradient, i, [&] {
        if (!repeatable) return run.deferred.run();
        nn::WeightGradQueue copy = run.deferred;
        copy.run();
      });
    gradients = gradients_of(run.inputs);
    run = {};
  }
}

void LayerBench::backward_in_graph(nn::Tensors gradients, const Around& around) {
  for (std::size_t i = runs_.size(); i-- > 0;) {
    Run& run = runs_[i];
    Roots roots = Roots::of(run.outputs, std::exchange(gradients, {}));
    if (roots.outputs.empty()) break;
    const at::Tensor seed = at::zeros({1}, roots.gradients.front().options());
    torch::autograd::edge_list edges;
    for (const at::Tensor& output : roots.outputs) edges.push_back(torch::autograd::impl::gradient_edge(output));
    torch::autograd::Edge root(std::make_shared<HandOver>(std::move(roots.gradients), seed, std::move(edges)), 0);
    roots = {};
    run.outputs.clear();
    around(Part::kBackward, i, [&] {
      torch::autograd::Engine::get_default_engine().execute({std::exchange(root, {})}, {seed}, /*keep_graph=*/false,
                                                            /*create_graph=*/false, /*accumulate_grad=*/true);
    });
    if (!run.deferred.empty()) around(Part::kWeightGradient, i, [&] { run.deferred.run(); });
    gradients = std::exchange(run.input_gradients, {});
    run = {};
  }
}

}  // namespace sluice::measure
