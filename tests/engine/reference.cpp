#include "engine/reference.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/check.h"
#include "task/task.h"

namespace sluice::engine::test {
namespace {

constexpr std::int64_t kClasses = 5, kPixels = 8, kTokens = 11, kContext = 6;
constexpr std::uint64_t kSeed = 11;  // of weights

Partition even_partition(int layers, int stages) {
  Partition partition{std::vector<int>(stages, layers / stages)};
  for (int i = 0; i < layers % stages; ++i) ++partition.layers_per_stage[i];
  return partition;
}

double length(const at::Tensor& tensor) { return tensor.to(at::kDouble).norm().item<double>(); }

}  // namespace

models::ModelOptions small_model(const std::string& name, double dropout) {
  if (models::kind_of(models::ModelOptions({.name = name})) == SampleKind::kTokens) {
    return models::ModelOptions(
        {.name = name, .size = "nano", .patch_size = 0, .vocabulary = kTokens, .context = kContext, .dropout = dropout},
        at::kDouble, kSeed);
  }
  return models::ModelOptions({.name = name,
                               .size = "nano",
                               .classes = kClasses,
                               .channels = 3,
                               .image_size = kPixels,
                               .patch_size = 4,
                               .dropout = dropout},
                              at::kDouble, kSeed);
}

pipeline::MicroBatch make_batch(std::int64_t samples, std::int64_t seed) {
  // Not at::randn: tests of one process must not depend on each other's draws.
  const at::Tensor ramp = at::arange(samples * 3 * kPixels * kPixels, at::kDouble) + 1000.0 * static_cast<double>(seed);
  const at::Tensor inputs =
      (ramp * 12.9898).sin().mul(43.7585).frac().view({samples, 3, kPixels, kPixels}).contiguous();
  const at::Tensor numbers = at::arange(samples, at::kLong);
  return {{inputs}, {(numbers * 3 + seed).remainder(kClasses)}, numbers * 17 + 5 + seed};
}

pipeline::MicroBatch make_token_batch(std::int64_t samples, std::int64_t seed) {
  const at::Tensor numbers = at::arange(samples * kContext, at::kLong);
  const at::Tensor positions = numbers.view({samples, kContext}) + seed;
  const at::Tensor inputs = (positions * positions * 7 + positions * 3).remainder(kTokens);
  at::Tensor targets =
      (positions * 5 + seed).remainder(kTokens).masked_fill(positions.remainder(3).eq(0), task::kNoTarget);
  targets.narrow(0, samples / 3, std::min<std::int64_t>(2, samples - samples / 3 - 1)).fill_(task::kNoTarget);
  return {{inputs}, {targets}, at::arange(samples, at::kLong) * 17 + 5 + seed};
}

namespace {

Composition compose_model(const models::ModelOptions& model, Plan plan, int stages, ComposeOptions options) {
  plan.partition = even_partition(models::count_layers(model), stages);
  options.model_name = model.name;
  options.make_layers = [model] { return models::make_model(model).layers; };
  options.bucket_bytes = 5000;  // several buckets a stage
  if (options.communicators != nullptr) options.numerics.batch_norm = nn::BatchNormMode::kSync;
  for (int i = 0; static_cast<int>(options.devices.size()) < plan.devices() * plan.replicas; ++i)
    options.devices.push_back({device::DeviceKind::kCpu, i});
  return compose(plan, options);
}

}  // namespace

Composition make_grid(const models::ModelOptions& model, Plan plan, int per_replica,
                      const optim::OptimizerOptions& optimizer, const std::vector<device::Device>& devices) {
  const int stages = per_replica * plan.virtual_stages;
  return compose_model(model, std::move(plan), stages, {.devices = devices, .optimizer = optimizer});
}

Composition make_grid(const models::ModelOptions& model, const std::string& schedule, int stages, int replicas,
                      const optim::OptimizerOptions& optimizer, const std::vector<device::Device>& devices,
                      comm::Processes* processes) {
  return compose_model(model, {.replicas = replicas, .schedule = schedule}, stages,
                       {.devices = devices,
                        .optimizer = optimizer,
                        .communicators = processes == nullptr ? nullptr : std::make_shared<Communicators>(*processes)});
}

std::vector<pipeline::MicroBatch> pieces_of(const pipeline::MicroBatch& batch, int replicas, int chunks) {
  std::vector<pipeline::MicroBatch> pieces;
  for (const auto& share : pipeline::split(batch, replicas)) {
    for (const auto& piece : pipeline::split(share, chunks)) {
      if (piece.samples() > 0) pieces.push_back(piece);
    }
  }
  return pieces;
}

std::vector<pipeline::MicroBatch> joined_micro_batches(const pipeline::MicroBatch& batch, int replicas, int chunks) {
  std::vector<std::vector<pipeline::MicroBatch>> of_replicas;
  for (const auto& share : pipeline::split(batch, replicas)) of_replicas.push_back(pipeline::split(share, chunks));
  std::vector<pipeline::MicroBatch> joined;
  for (int m = 0; m < chunks; ++m) {
    std::vector<at::Tensor> inputs, targets, sample_ids;
    for (const auto& of_replica : of_replicas) {
      inputs.push_back(of_replica[m].inputs[0]);
      targets.push_back(of_replica[m].targets[0]);
      sample_ids.push_back(of_replica[m].sample_ids);
    }
    joined.push_back({{at::cat(inputs)}, {at::cat(targets)}, at::cat(sample_ids)});
    if (joined.back().samples() == 0) joined.pop_back();
  }
  return joined;
}

ReferenceModel::ReferenceModel(const models::ModelOptions& options)
    : ReferenceModel(models::make_model(options).layers) {}

// Tied parameters are one tensor here.
ReferenceModel::ReferenceModel(pipeline::LayerList layers) : layers_(std::move(layers)) {
  std::map<std::string, nn::Parameter*> by_name;
  for (const auto& layer : layers_) {
    for (auto* parameter : layer->parameters()) by_name[parameter->name] = parameter;
  }
  for (const auto& [name, parameter] : by_name) {
    if (parameter->tied_to.empty()) {
      parameters_.push_back(parameter);
    } else {
      parameter->value = by_name.at(parameter->tied_to)->value;
    }
  }
}

ReferenceStep ReferenceModel::step(const std::vector<pipeline::MicroBatch>& pieces, const nn::ForwardContext& context) {
  std::int64_t samples = 0;
  for (const auto& piece : pieces) samples += piece.targets[0].ge(0).sum().item<std::int64_t>();
  ReferenceStep result;
  for (auto* parameter : parameters_) parameter->value.mutable_grad() = at::Tensor();
  std::vector<at::Tensor> logits;
  for (const auto& piece : pieces) {
    nn::ForwardContext of_piece = context;
    of_piece.sample_ids = piece.sample_ids;
    nn::Tensors border = piece.inputs;
    for (const auto& layer : layers_) border = layer->forward_all(border, of_piece);
    const at::Tensor& x = border.front();
    const at::Tensor targets = piece.targets[0].flatten(), scores = x.flatten(0, -2).log_softmax(1);
    const at::Tensor chosen = scores.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
    const at::Tensor loss = -chosen.masked_select(targets.ge(0)).sum() / static_cast<double>(samples);
    torch::autograd::backward({loss}, {});
    result.loss += loss.item<double>();
    logits.push_back(x.detach());
  }
  result.logits = at::cat(logits);
  for (const auto* parameter : parameters_) {
    if (parameter->value.requires_grad()) result.gradients[parameter->name] = parameter->value.grad();
  }
  return result;
}

void ReferenceModel::update(const optim::OptimizerOptions& optimizer, double lr, double clip_norm) {
  double squares = 0;
  const auto is_trained = [](const nn::Parameter* parameter) { return parameter->value.requires_grad(); };
  for (const auto* parameter : parameters_ | std::views::filter(is_trained))
    squares += std::pow(length(parameter->value.grad()), 2);
  const double share = clip_norm > 0 ? std::min(1.0, clip_norm / (std::sqrt(squares) + 1e-6)) : 1.0;
  ++updates_;
  for (const auto* parameter : parameters_ | std::views::filter(is_trained)) {
    reference_update(optimizer, lr, updates_, parameter->value, parameter->value.grad() * share,
                     states_[parameter->name]);
  }
}

double ReferenceModel::train(const pipeline::MicroBatch& batch, const nn::ForwardContext& context,
                             const optim::OptimizerOptions& optimizer, double lr, double clip_norm) {
  const ReferenceStep result = step({batch}, context);
  update(optimizer, lr, clip_norm);
  return result.loss;
}

storage::TensorMap ReferenceModel::parameters() const {
  storage::TensorMap tensors;
  for (const auto* parameter : parameters_) tensors[parameter->name] = parameter->value.detach();
  return tensors;
}

storage::TensorMap ReferenceModel::tensors() const {
  storage::TensorMap tensors = parameters();
  for (const auto& layer : layers_) {
    for (const auto* buffer : layer->buffers()) tensors[buffer->name] = buffer->value;
  }
  return tensors;
}

void ReferenceModel::load(const storage::TensorMap& tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, own] : this->tensors()) own.copy_(tensors.at(name));
}

namespace {

// The moving mean of `values`; `state` starts empty.
at::Tensor moving_mean(at::Tensor& state, const at::Tensor& values, double decay) {
  state = (state.defined() ? state : at::zeros_like(values)) * decay + values * (1 - decay);
  return state;
}

// What a step goes along, times the rate.
at::Tensor direction(const optim::OptimizerOptions& options, double step, const at::Tensor& gradient,
                     storage::TensorMap& state) {
  if (options.kind.starts_with("adam")) {
    const at::Tensor mean = moving_mean(state["exp_avg"], gradient, options.beta1);
    const at::Tensor square = moving_mean(state["exp_avg_sq"], gradient * gradient, options.beta2);
    return mean / (1 - std::pow(options.beta1, step)) /
           ((square / (1 - std::pow(options.beta2, step))).sqrt() + options.eps);
  }
  if (options.kind == "rmsprop") {
    const at::Tensor square = moving_mean(state["square_avg"], gradient * gradient, options.rms_alpha);
    return gradient / (square.sqrt() + options.eps);
  }
  if (options.kind == "momentum") {
    at::Tensor& buffer = state["momentum_buffer"];
    buffer = buffer.defined() ? buffer * options.momentum + gradient : gradient.clone();
    return options.nesterov ? gradient + buffer * options.momentum : buffer;
  }
  check(options.kind == "sgd", "an optimizer that the reference does not know");
  return gradient;
}

}  // namespace

void reference_update(const optim::OptimizerOptions& options, double lr, std::int64_t step, at::Tensor parameter,
                      at::Tensor gradient, storage::TensorMap& state) {
  const at::NoGradGuard no_grad;
  if (options.kind == "adamw") {
    parameter.mul_(1 - lr * options.weight_decay);
  } else {
    gradient = gradient + parameter * options.weight_decay;
  }
  parameter.sub_(lr * direction(options, static_cast<double>(step), gradient, state));
}

WorstError worst_error(const storage::TensorMap& ours, const storage::TensorMap& theirs) {
  double squares = 0;
  for (const auto& [name, tensor] : theirs) squares += std::pow(length(tensor), 2);
  WorstError worst;
  for (const auto& [name, expected] : theirs) {
    const auto found = ours.find(name);
    if (found == ours.end() || found->second.sizes() != expected.sizes()) return {HUGE_VAL, name + " (name or shape)"};
    const double scale = std::max({length(expected), 1e-3 * std::sqrt(squares), 1e-300});
    const double error = length(found->second.to(at::kDouble) - expected.to(at::kDouble)) / scale;
    if (!(error <= worst.error)) worst = {error, name};
  }
  if (ours.size() != theirs.size()) return {HUGE_VAL, "another number of tensors"};
  return worst;
}

}  // namespace sluice::engine::test
