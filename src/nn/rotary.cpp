#include "nn/rotary.h"

#include <algorithm>
#include <numbers>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RotaryArguments {
  at::Tensor cosine, sine;  // [positions, half]
  at::Tensor positions;     // undefined, or [N, T] int64
  std::int64_t heads;       // of query and key together
};

template <typename T>
at::Tensor rotate_packed(const at::Tensor& input, const RotaryArguments& arguments, float direction) {
  const at::Tensor packed = input.contiguous();
  at::Tensor out = at::empty_like(packed);
  const std::int64_t tokens = packed.size(1), width = packed.size(2), half = arguments.cosine.size(1);
  const std::int64_t rotated = arguments.heads * 2 * half;
  const T* from = values_of<T>(packed);
  T* to = mutable_values_of<T>(out);
  const auto *cosine = values_of<float>(arguments.cosine), *sine = values_of<float>(arguments.sine);
  const auto* positions = values_of<std::int64_t>(arguments.positions);
  parallel_for(0, packed.size(0) * tokens, kPieceValues / std::max<std::int64_t>(width, 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t angle = (positions != nullptr ? positions[row] : row % tokens) * half;
                   const T* x = from + row * width;
                   T* y = to + row * width;
                   kernels::best().rotary.of<T>().rotate(x, cosine + angle, sine + angle, direction, arguments.heads,
                                                         half, y);
                   std::copy(x + rotated, x + width, y + rotated);
                 }
               });
  return out;
}

template <typename T>
class RotaryFunction : public torch::autograd::Function<RotaryFunction<T>> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& packed, const RotaryArguments& arguments) {
    OwnOperator call("sluice::rotary", {packed});
    at::Tensor out = rotate_packed<T>(packed, arguments, 1);
    call.made({out});
    ctx->saved_data["cosine"] = arguments.cosine;
    ctx->saved_data["sine"] = arguments.sine;
    ctx->save_for_backward({arguments.positions});
    ctx->saved_data["heads"] = arguments.heads;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const RotaryArguments arguments{ctx->saved_data["cosine"].toTensor(), ctx->saved_data["sine"].toTensor(),
                                    ctx->get_saved_variables()[0], ctx->saved_data["heads"].toInt()};
    OwnOperator call("sluice::rotary_backward", {grads[0]});
    at::Tensor grad = rotate_packed<T>(grads[0], arguments, -1);
    call.made({grad});
    return {grad, {}};
  }
};

at::Tensor rotary_by_formula(const at::Tensor& packed, const RotaryArguments& arguments) {
  const std::int64_t tokens = packed.size(1), half = arguments.cosine.size(1), rotated = arguments.heads * 2 * half;
  const at::Tensor pairs =
      in_float(packed.narrow(2, 0, rotated)).reshape({packed.size(0), tokens, arguments.heads, 2, half});
  const auto at_positions = [&](const at::Tensor& table) {
    const at::Tensor rows = arguments.positions.defined() ? at::embedding(table, arguments.positions)
                                                          : table.narrow(0, 0, tokens).unsqueeze(0);
    return rows.unsqueeze(2).to(pairs.scalar_type());
  };
  const at::Tensor cosine = at_positions(arguments.cosine), sine = at_positions(arguments.sine);
  const at::Tensor first = pairs.select(3, 0), second = pairs.select(3, 1);
  const at::Tensor turned = at::stack({first * cosine - second * sine, second * cosine + first * sine}, 3);
  return at::cat({turned.flatten(2).to(packed.scalar_type()), packed.narrow(2, rotated, packed.size(2) - rotated)}, 2);
}

void require(bool is_fulfilled, const std::string& what) {
  if (!is_fulfilled) throw ConfigError(concat("Rotary positions need ", what, "; change the model's configuration."));
}

// Piecewise in the wavelength, as in Hugging Face's "llama3".
at::Tensor llama3_frequencies(const at::Tensor& plain, const RotaryOptions& options) {
  const auto original = static_cast<double>(options.original_positions);
  const at::Tensor waves = 2 * std::numbers::pi / plain;
  const at::Tensor is_long = waves.gt(original / options.low_factor),
                   is_short = waves.lt(original / options.high_factor);
  const at::Tensor share = (original / waves - options.low_factor) / (options.high_factor - options.low_factor);
  const at::Tensor between = (1 - share) * plain / options.factor + share * plain;
  return at::where(is_long, plain / options.factor, at::where(is_short, plain, between));
}

}  // namespace

at::Tensor rotary_frequencies(const RotaryOptions& options) {
  require(options.head_width > 0 && options.head_width % 2 == 0,
          concat("an even head width, not ", options.head_width));
  require(options.positions > 0, "at least one position");
  require(options.theta > 0 && options.factor > 0, "a theta and a factor above 0");
  const auto width = static_cast<double>(options.head_width);
  const at::Tensor plain = 1 / at::pow(options.theta, at::arange(0, options.head_width, 2, at::kFloat) / width);
  switch (options.scaling) {
    case RotaryScaling::kNone: return plain;
    case RotaryScaling::kLinear: return plain / options.factor;
    case RotaryScaling::kLlama3:
      require(options.low_factor > 0 && options.high_factor > options.low_factor && options.original_positions > 0,
              "0 < low_factor < high_factor and original_positions above 0");
      return llama3_frequencies(plain, options);
  }
  check(false, "a known RotaryScaling");
  return {};
}

Rotary::Rotary(const RotaryOptions& options) : options_(options), frequencies_(rotary_frequencies(options)) {}

Rotary::Tables Rotary::tables_on(at::Device device) const {
  const std::lock_guard lock(mutex_);
  Tables& tables = tables_[device.str()];
  if (!tables.cosine.defined()) {
    const at::Tensor angles = at::arange(options_.positions, at::kFloat).unsqueeze(1) * frequencies_;
    tables = {angles.cos().to(device), angles.sin().to(device)};
  }
  return tables;
}

at::Tensor Rotary::operator()(const at::Tensor& packed, std::int64_t heads, std::int64_t kv_heads,
                              const at::Tensor& positions) const {
  check(packed.dim() == 3 && packed.size(2) == (heads + 2 * kv_heads) * options_.head_width,
        "packed [N, T, (heads + 2 kv_heads) head_width]");
  if (positions.defined()) {
    check(positions.scalar_type() == at::kLong && positions.sizes() == packed.sizes().slice(0, 2),
          "positions [N, T] of int64");
    check(!positions.is_cpu() || positions.numel() == 0 ||
              (positions.min().item<std::int64_t>() >= 0 && positions.max().item<std::int64_t>() < options_.positions),
          concat("positions from 0 to ", options_.positions - 1));
  } else {
    check(packed.size(1) <= options_.positions, concat("at most ", options_.positions, " positions"));
  }
  const Tables tables = tables_on(packed.device());
  const RotaryArguments arguments{
      tables.cosine, tables.sine,
      positions.defined() ? positions.to(packed.device(), /*non_blocking=*/true).contiguous() : at::Tensor(),
      heads + kv_heads};
  if (!suits_kernels(packed)) return rotary_by_formula(packed, arguments);
  return with_type_of(packed, [&](auto number) { return RotaryFunction<decltype(number)>::apply(packed, arguments); });
}

}  // namespace sluice::nn
