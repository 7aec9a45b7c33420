#include "nn/dropout.h"

#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "core/rng.h"
#include "nn/bfloat16.h"
#include "nn/cuda/operations.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sample ids on the device of x. The copy does not block: CUDA has read pageable memory when the call returns.
at::Tensor ids_for(const at::Tensor& x, const ForwardContext& context) {
  check(context.sample_ids.defined() && context.sample_ids.numel() == x.size(0) &&
            context.sample_ids.scalar_type() == at::kLong,
        "ForwardContext::sample_ids with one int64 for each sample of dropout's input");
  return context.sample_ids.to(x.device(), /*non_blocking=*/true).contiguous();
}

constexpr double kUniform = -1;  // as p: the numbers themselves

void fill_sample(std::uint64_t key, const gpu::MaskNumbers& mask, std::int64_t count, float* factors) {
  for (std::int64_t i = 0; i < count; i += 4) {
    const auto words = philox(key, 0, static_cast<std::uint64_t>(i / 4));
    const std::int64_t end = std::min<std::int64_t>(4, count - i);
    for (std::int64_t j = 0; j < end; ++j) factors[i + j] = gpu::mask_factor(mask, words[static_cast<std::size_t>(j)]);
  }
}

std::uint64_t key_of_site(std::string_view site, const ForwardContext& context) {
  return derive_key(context.seed, hash_name(site));
}

gpu::MaskNumbers with_key(std::uint64_t key, double p) {
  if (p == kUniform) return {.layer_key = key, .threshold = 0, .kept = 0};
  return {.layer_key = key,
          .threshold = static_cast<std::uint64_t>(std::llround(p * 0x1.0p32)),
          .kept = static_cast<float>(1.0 / (1.0 - p))};
}

const std::int64_t* address_of(const at::Tensor& step) {
  return step.defined() ? step.const_data_ptr<std::int64_t>() : nullptr;
}

// The step number stays in device memory, so the host does not wait for it.
gpu::MaskNumbers numbers_on_gpu(double p, std::string_view site, const ForwardContext& context, c10::Device device) {
  const at::Tensor& step = context.step_in_memory;
  if (!step.defined()) return mask_numbers(p, site, context);
  check(step.device() == device, "the step number on the device of the input");
  gpu::MaskNumbers numbers = with_key(key_of_site(site, context), p);
  numbers.step = address_of(step);
  return numbers;
}

// x times the dropout factors; backward draws the factors again instead of keeping them.
class DropoutOnGpu : public torch::autograd::Function<DropoutOnGpu> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& sample_ids,
                            const gpu::MaskNumbers& mask, const std::optional<at::Tensor>& step) {
    ctx->save_for_backward({sample_ids, step ? *step : at::Tensor()});
    ctx->saved_data["layer_key"] = static_cast<std::int64_t>(mask.layer_key);
    ctx->saved_data["threshold"] = static_cast<std::int64_t>(mask.threshold);
    ctx->saved_data["kept"] = static_cast<double>(mask.kept);
    OwnOperator call("sluice::dropout", {x, sample_ids});
    const at::Tensor y = gpu::dropout(x, sample_ids, mask);
    call.made({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& sample_ids = saved[0];
    const gpu::MaskNumbers mask{.layer_key = static_cast<std::uint64_t>(ctx->saved_data["layer_key"].toInt()),
                                .threshold = static_cast<std::uint64_t>(ctx->saved_data["threshold"].toInt()),
                                .kept = static_cast<float>(ctx->saved_data["kept"].toDouble()),
                                .step = address_of(saved[1])};
    OwnOperator call("sluice::dropout_backward", {grads[0], sample_ids});
    const at::Tensor grad_x = gpu::dropout(grads[0], sample_ids, mask);
    call.made({grad_x});
    return {grad_x, {}, {}, {}};
  }
};

at::Tensor dropout_on_gpu(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context) {
  const at::Tensor& step = context.step_in_memory;
  return DropoutOnGpu::apply(x, ids_for(x, context), numbers_on_gpu(p, site, context, x.device()),
                             step.defined() ? std::optional(step) : std::nullopt);
}

at::Tensor factors_on_gpu(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context) {
  const at::Tensor ids = ids_for(x, context);
  OwnOperator call("sluice::dropout_mask", {ids});
  const at::Tensor factors = gpu::dropout_factors(x.sizes(), ids, numbers_on_gpu(p, site, context, x.device()));
  call.made({factors});
  return factors;
}

// In bfloat16, 1 / (1 - p) would be off by up to 0.4 %, always in the same direction.
at::ScalarType factor_type(const at::Tensor& x) { return is_bf16(x) ? at::kFloat : x.scalar_type(); }

}  // namespace

gpu::MaskNumbers mask_numbers(double p, std::string_view site, const ForwardContext& context) {
  const at::Tensor& kept = context.step_in_memory;
  const std::int64_t step = kept.defined() ? kept.item<std::int64_t>() : context.step;
  return with_key(derive_key(key_of_site(site, context), static_cast<std::uint64_t>(step)), p);
}

at::Tensor dropout_mask(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context) {
  if (gpu::run_on_device_of(x)) return factors_on_gpu(x, p, site, context).to(factor_type(x));
  const gpu::MaskNumbers numbers = mask_numbers(p, site, context);
  const at::Tensor ids = ids_for(x, context).cpu();
  const auto* id = ids.const_data_ptr<std::int64_t>();
  const std::int64_t samples = x.size(0);
  const std::int64_t count = samples == 0 ? 0 : x.numel() / samples;
  OwnOperator call("sluice::dropout_mask", {ids});
  at::Tensor mask = at::empty(x.sizes(), at::kFloat);
  auto* factors = mask.mutable_data_ptr<float>();
  parallel_for(0, samples, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      fill_sample(derive_key(numbers.layer_key, static_cast<std::uint64_t>(id[s])), numbers, count,
                  factors + s * count);
    }
  });
  call.made({mask});
  return mask.to(x.device(), factor_type(x));
}

at::Tensor keyed_uniform(const at::Tensor& x, std::string_view site, const ForwardContext& context) {
  return dropout_mask(x, kUniform, site, context).to(x.scalar_type());
}

at::Tensor dropout(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context) {
  if (!context.training || p == 0) return x;
  if (gpu::suits(x)) return dropout_on_gpu(x, p, site, context);
  return (x * dropout_mask(x, p, site, context)).to(x.scalar_type());
}

}  // namespace sluice::nn
