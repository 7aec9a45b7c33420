#include "nn/lora.h"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "nn/flops.h"
#include "nn/gemm.h"
#include "nn/weight_queue.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Begins = std::vector<std::int64_t>;

// [sum of ranks, in], in the type of x.
at::Tensor joined_factor(const variable_list& a, const at::Tensor& x) {
  return (a.size() == 1 ? a.front() : at::cat(a)).to(x.scalar_type());
}

at::Tensor columns_of(const at::Tensor& y, const at::Tensor& b, std::int64_t begin) {
  return y.narrow(1, begin, b.size(0));
}

// Calls visit(index, columns of a part in a tensor [rows, sum of ranks]).
template <typename Visit>
void for_each_part(const variable_list& a, const at::Tensor& joined, const Visit& visit) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    visit(i, joined.narrow(1, at, a[i].size(0)));
    at += a[i].size(0);
  }
}

// [rows, sum of ranks]: the gradient of x a', times the scale.
at::Tensor inner_gradient(const at::Tensor& grad, const variable_list& b, const Begins& begins, double scale) {
  variable_list parts;
  for (std::size_t i = 0; i < b.size(); ++i)
    parts.push_back(at::mm(columns_of(grad, b[i], begins[i]), b[i].to(grad.scalar_type())));
  return (parts.size() == 1 ? parts.front() : at::cat(parts, 1)).mul_(scale);
}

struct FactorGradients {
  variable_list a, b;
};

FactorGradients factor_gradients(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& hidden,
                                 const at::Tensor& inner, const variable_list& a, const variable_list& b,
                                 const Begins& begins, double scale) {
  FactorGradients result;
  for_each_part(a, inner,
                [&](std::size_t, const at::Tensor& own) { result.a.push_back(linear_weight_gradient(own, x)); });
  for_each_part(a, hidden, [&](std::size_t i, const at::Tensor& own) {
    result.b.push_back(linear_weight_gradient(columns_of(grad, b[i], begins[i]), own).mul_(scale));
  });
  return result;
}

class AdapterFunction : public torch::autograd::Function<AdapterFunction> {
 public:
  // factors: a and b of each part, in turn.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const at::Tensor& x, at::TensorList factors,
                            const Begins& begins, double scale, WeightGradQueue* queue) {
    variable_list a, b;
    for (std::size_t i = 0; i < factors.size(); i += 2) a.push_back(factors[i]), b.push_back(factors[i + 1]);
    const at::Tensor hidden = linear_forward(x, joined_factor(a, x), std::nullopt);
    for_each_part(a, hidden, [&](std::size_t i, const at::Tensor& own) {
      columns_of(y, b[i], begins[i]).addmm_(own, b[i].to(y.scalar_type()).t(), 1, scale);
    });
    variable_list saved{x, hidden};
    saved.insert(saved.end(), a.begin(), a.end());
    saved.insert(saved.end(), b.begin(), b.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["begins"] = begins;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["queue"] = reinterpret_cast<std::int64_t>(queue);
    ctx->mark_dirty({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto begins = ctx->saved_data["begins"].toIntVector();
    const double scale = ctx->saved_data["scale"].toDouble();
    auto* queue = reinterpret_cast<WeightGradQueue*>(ctx->saved_data["queue"].toInt());
    const at::Tensor &x = saved[0], &hidden = saved[1], grad = grads[0].contiguous();
    const auto first_a = saved.begin() + 2, first_b = first_a + static_cast<std::ptrdiff_t>(begins.size());
    const variable_list a(first_a, first_b), b(first_b, saved.end());
    const at::Tensor inner = inner_gradient(grad, b, begins, scale);

    variable_list result(2 + 2 * a.size() + 3);  // y, x, factors, begins, scale, queue
    result[0] = grad;
    if (ctx->needs_input_grad(1)) result[1] = linear_input_gradient(inner, joined_factor(a, x));
    if (!ctx->needs_input_grad(2)) return result;
    if (queue != nullptr) {
      defer(*queue, {grad, x.detach(), hidden, inner}, a, b, begins, scale);
      return result;
    }
    FactorGradients own = factor_gradients(grad, x, hidden, inner, a, b, begins, scale);
    for (std::size_t i = 0; i < a.size(); ++i) {
      result[2 + 2 * i] = std::move(own.a[i]);
      result[3 + 2 * i] = std::move(own.b[i]);
    }
    return result;
  }

 private:
  // kept: arguments of factor_gradients().
  static void defer(WeightGradQueue& queue, const variable_list& kept, const variable_list& a, const variable_list& b,
                    const Begins& begins, double scale) {
    variable_list own_a, own_b;
    for (const at::Tensor& factor : a) own_a.push_back(parameter_of(factor));
    for (const at::Tensor& factor : b) own_b.push_back(parameter_of(factor));
    variable_list parameters = own_a;
    parameters.insert(parameters.end(), own_b.begin(), own_b.end());
    queue.push(std::move(parameters), kept, [kept, own_a, own_b, begins, scale] {
      const FactorGradients all = factor_gradients(kept[0], kept[1], kept[2], kept[3], own_a, own_b, begins, scale);
      for (std::size_t i = 0; i < own_a.size(); ++i) {
        add_to_gradient(own_a[i], all.a[i]);
        add_to_gradient(own_b[i], all.b[i]);
      }
    });
  }
};

}  // namespace

at::Tensor add_adapters(const at::Tensor& y, const at::Tensor& x, const std::vector<LoraPart>& parts, double scale,
                        const ForwardContext& context) {
  variable_list factors;
  Begins begins;
  for (const LoraPart& part : parts) {
    factors.push_back(part.a);
    factors.push_back(part.b);
    begins.push_back(part.begin);
    const auto rank = static_cast<double>(part.a.size(0));
    count_product(ProductKind::kLinear, static_cast<double>(x.numel()) * rank, x, part.a);
    count_product(ProductKind::kLinear, static_cast<double>(x.size(0) * part.b.size(0)) * rank, part.a, part.b);
  }
  return AdapterFunction::apply(y, x, at::TensorList(factors), begins, scale, context.weight_queue);
}

std::optional<Lora> Lora::make(Registry& registry, const LinearInfo& layer) {
  const LoraOptions* const options = registry.lora();
  if (options == nullptr || !options->layers.contains(layer.name)) return std::nullopt;
  Parameter& a =
      registry.add_parameter(layer.name + ".lora_A.weight", {options->rank, layer.in}, Init::uniform_fan_in(layer.in));
  Parameter& b = registry.add_parameter(layer.name + ".lora_B.weight", {layer.out, options->rank}, Init::constant(0));
  return Lora{&a, &b, options->scale, options->dropout};
}

}  // namespace sluice::nn
