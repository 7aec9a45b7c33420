#include "nn/linear.h"

#include <array>

#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "nn/bfloat16.h"
#include "nn/dropout.h"
#include "nn/flops.h"
#include "nn/gemm.h"
#include "nn/weight_queue.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Flattens weights of more than two dimensions (patch projections) to [out, everything else].
at::Tensor flatten_weight(const at::Tensor& w) { return w.dim() <= 2 ? w : w.flatten(1); }

at::Tensor join_rows(at::TensorList parts) {
  if (parts.size() == 1) return flatten_weight(parts[0]);
  variable_list flat;
  for (const auto& part : parts) flat.push_back(flatten_weight(part));
  return at::cat(flat);
}

variable_list split_rows(const at::Tensor& joined, const variable_list& like) {
  if (like.size() == 1) return {joined.view(like[0].sizes())};
  variable_list parts;
  std::int64_t at = 0;
  for (const auto& part : like) {
    parts.push_back(joined.narrow(0, at, part.size(0)).view(part.sizes()));
    at += part.size(0);
  }
  return parts;
}

// Rounds while it copies; on GPUs by one kernel.
at::Tensor join_rounded(at::TensorList parts, at::ScalarType type) {
  variable_list flat;
  std::int64_t rows = 0;
  for (const auto& part : parts) {
    flat.push_back(flatten_weight(part.detach()));
    rows += part.size(0);
  }
  at::Tensor joined = at::empty({rows, flat[0].size(1)}, flat[0].options().dtype(type));
  at::_foreach_copy_(split_rows(joined, flat), flat);
  return joined;
}

at::Tensor flatten_rows(const at::Tensor& x) { return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)}); }

std::vector<std::int64_t> with_last_size(const at::Tensor& x, std::int64_t last) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return sizes;
}

struct WeightGradients {
  variable_list weights, biases;
};

WeightGradients weight_gradients(const at::Tensor& grad, const at::Tensor& x, const variable_list& weights,
                                 const variable_list& biases, WeightLayout layout) {
  // grad' x is [out, in]; its transpose x' grad is [in, out].
  const at::Tensor of_weights =
      layout == WeightLayout::kOutIn ? linear_weight_gradient(grad, x) : linear_weight_gradient(x, grad);
  WeightGradients result{split_rows(of_weights, weights), {}};
  if (!biases.empty()) result.biases = split_rows(grad.sum(0, false, biases[0].scalar_type()), biases);
  return result;
}

at::Tensor joined_weight(const at::Tensor& x, at::TensorList weights, WeightLayout layout, TransformedWeights* kept) {
  if (layout == WeightLayout::kInOut) return weight_for(x, weights[0], kept).t();
  if (weights.size() == 1) return flatten_weight(weight_for(x, weights[0], kept));
  if (x.scalar_type() == weights[0].scalar_type()) return join_rows(weights);
  const auto make = [&] { return join_rounded(weights, x.scalar_type()); };
  return kept != nullptr
             ? kept->get(weights[0], TransformedWeights::Use::kBfloat16, static_cast<int>(weights.size()), make)
             : make();
}

std::vector<std::int64_t> weight_sizes(std::int64_t in, std::int64_t out, WeightLayout layout) {
  if (layout == WeightLayout::kOutIn) return {out, in};
  return {in, out};
}

class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  // Lists must be TensorList: apply() treats any other list type as a constant.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList weights, at::TensorList biases,
                            WeightGradQueue* queue, TransformedWeights* transformed, WeightLayout layout) {
    const at::Tensor rows = flatten_rows(x);
    const at::Tensor weight = joined_weight(rows, weights, layout, transformed);
    // Only the weight's gradient needs x. A rounded weight is made again in backward.
    variable_list saved{weights[0].requires_grad() ? rows : at::Tensor(), is_bf16(rows) ? at::Tensor() : weight};
    saved.insert(saved.end(), weights.begin(), weights.end());
    saved.insert(saved.end(), biases.begin(), biases.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["parts"] = static_cast<std::int64_t>(weights.size());
    ctx->saved_data["queue"] = reinterpret_cast<std::int64_t>(queue);
    ctx->saved_data["transformed"] = reinterpret_cast<std::int64_t>(transformed);
    ctx->saved_data["layout"] = static_cast<std::int64_t>(layout);
    const auto bias = biases.empty() ? std::nullopt : std::optional<at::Tensor>(join_rows(biases).to(x.scalar_type()));
    at::Tensor y = linear_forward(rows, weight, bias);
    return x.dim() == 2 ? y : y.view(with_last_size(x, y.size(1)));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto parts = ctx->saved_data["parts"].toInt();
    auto* queue = reinterpret_cast<WeightGradQueue*>(ctx->saved_data["queue"].toInt());
    const auto layout = static_cast<WeightLayout>(ctx->saved_data["layout"].toInt());
    const at::Tensor& x = saved[0];
    const auto first_weight = saved.begin() + 2, first_bias = first_weight + parts;
    const variable_list weights(first_weight, first_bias), biases(first_bias, saved.end());
    const at::Tensor grad = flatten_rows(grads[0]).contiguous();

    variable_list result(1 + weights.size() + biases.size() + 3);  // x, weights, biases, queue, transformed, layout
    if (ctx->needs_input_grad(0)) {
      auto* transformed = reinterpret_cast<TransformedWeights*>(ctx->saved_data["transformed"].toInt());
      const at::Tensor weight = saved[1].defined() ? saved[1] : joined_weight(grad, weights, layout, transformed);
      result[0] = linear_input_gradient(grad, weight).view(with_last_size(grads[0], weight.size(1)));
    }
    if (!ctx->needs_input_grad(1)) return result;
    if (queue != nullptr) {
      variable_list own_weights, own_biases;
      for (const at::Tensor& weight : weights) own_weights.push_back(parameter_of(weight));
      for (const at::Tensor& bias : biases) own_biases.push_back(parameter_of(bias));
      variable_list parameters = own_weights;
      parameters.insert(parameters.end(), own_biases.begin(), own_biases.end());
      const at::Tensor input = x.detach();
      const auto work = [grad, input, weights = own_weights, biases = own_biases, layout] {
        const WeightGradients all = weight_gradients(grad, input, weights, biases, layout);
        for (std::size_t i = 0; i < weights.size(); ++i) add_to_gradient(weights[i], all.weights[i]);
        for (std::size_t i = 0; i < biases.size(); ++i) add_to_gradient(biases[i], all.biases[i]);
      };
      queue->push(std::move(parameters), {grad, input}, work);
      return result;
    }
    WeightGradients all = weight_gradients(grad, x, weights, biases, layout);
    std::move(all.weights.begin(), all.weights.end(), result.begin() + 1);
    std::move(all.biases.begin(), all.biases.end(), result.begin() + 1 + static_cast<std::ptrdiff_t>(weights.size()));
    return result;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                  const ForwardContext& context, WeightLayout layout) {
  check(layout == WeightLayout::kOutIn || weights.size() == 1, "a single weight in the layout [in, out]");
  for (const at::Tensor& weight : weights) {
    const std::int64_t out = weight.size(layout == WeightLayout::kOutIn ? 0 : 1);
    count_product(ProductKind::kLinear, static_cast<double>(x.numel()) * static_cast<double>(out), x, weight);
  }
  return LinearFunction::apply(x, at::TensorList(weights), at::TensorList(biases), context.weight_queue,
                               context.transformed_weights, layout);
}

Linear::Linear(Registry& registry, const std::string& name, std::int64_t in, std::int64_t out, const LinearInit& init,
               WeightLayout layout)
    : layout_(layout),
      activations_(registry.activations()),
      weight_(&registry.add_parameter(name + ".weight", weight_sizes(in, out, layout), init.weight)),
      bias_(init.bias ? &registry.add_parameter(name + ".bias", {out}, *init.bias, ParameterRole::kBias) : nullptr) {
  const LinearInfo info{name, in, out, layout == WeightLayout::kInOut};
  lora_ = Lora::make(registry, info);
  registry.add_linear(info);
}

at::Tensor Linear::operator()(const at::Tensor& x, const ForwardContext& context) const {
  return product(x.to(activations_), std::array{this}, has_bias(), context);
}

at::Tensor Linear::without_bias(const at::Tensor& x, const ForwardContext& context) const {
  return product(x.to(activations_), std::array{this}, /*with_biases=*/false, context);
}

at::Tensor Linear::product(const at::Tensor& x, std::span<const Linear* const> layers, bool with_biases,
                           const ForwardContext& context) {
  std::vector<at::Tensor> weights, biases;
  std::vector<LoraPart> adapters;
  const Linear* adapted = nullptr;
  std::int64_t begin = 0;
  for (const Linear* layer : layers) {
    weights.push_back(layer->weight());
    if (with_biases) biases.push_back(layer->bias());
    if (layer->lora_) {
      adapters.push_back({layer->lora_->a->value, layer->lora_->b->value, begin});
      if (adapted == nullptr) adapted = layer;
    }
    begin += layer->weight().size(layer->layout_ == WeightLayout::kOutIn ? 0 : 1);
  }
  const WeightLayout layout = layers.front()->layout_;
  if (adapted == nullptr) return linear(x, weights, biases, context, layout);
  const Lora& lora = *adapted->lora_;
  const at::Tensor rows = flatten_rows(x);
  const at::Tensor kept = lora.dropout > 0 ? flatten_rows(dropout(x, lora.dropout, lora.a->name, context)) : rows;
  const at::Tensor y = linear(rows, weights, biases, context, layout);
  return add_adapters(y, kept, adapters, lora.scale, context).view(with_last_size(x, y.size(1)));
}

at::Tensor linear_packed(const at::Tensor& x, std::span<const Linear* const> layers, const ForwardContext& context) {
  const bool have_biases = layers.front()->has_bias();
  for (const Linear* layer : layers) {
    check(layer->has_bias() == have_biases, "layers that all have a bias, or none");
    check(layer->layout() == WeightLayout::kOutIn, "weights in the layout [out, in]");
  }
  return Linear::product(x, layers, have_biases, context);
}

}  // namespace sluice::nn
