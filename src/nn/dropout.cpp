#include "nn/dropout.h"

#include <cmath>

#include <ATen/ATen.h>

#include "core/check.h"
#include "core/rng.h"
#include "nn/bfloat16.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

// Fills the factors of one sample: element i takes word i % 4 of block i / 4.
void fill_sample(std::uint64_t key, std::uint64_t threshold, float kept, std::int64_t count, float* factors) {
  for (std::int64_t i = 0; i < count; i += 4) {
    const auto words = philox(key, 0, static_cast<std::uint64_t>(i / 4));
    const std::int64_t end = std::min<std::int64_t>(4, count - i);
    for (std::int64_t j = 0; j < end; ++j)
      factors[i + j] = words[static_cast<std::size_t>(j)] < threshold ? 0.0F : kept;
  }
}

// 1 / (1 - p) in bfloat16 would be off by up to 0.4 %, always to the same side.
at::ScalarType factor_type(const at::Tensor& x) { return is_bf16(x) ? at::kFloat : x.scalar_type(); }

}  // namespace

at::Tensor dropout_mask(const at::Tensor& x, double p, std::string_view place, const ForwardContext& context) {
  const std::int64_t samples = x.size(0);
  check(context.sample_ids.defined() && context.sample_ids.numel() == samples &&
            context.sample_ids.scalar_type() == at::kLong,
        "dropout needs ForwardContext::sample_ids, one int64 for each sample of the input");
  const at::Tensor ids = context.sample_ids.cpu().contiguous();
  const auto* id = ids.const_data_ptr<std::int64_t>();
  const std::uint64_t layer_key =
      derive_key(derive_key(context.seed, hash_name(place)), static_cast<std::uint64_t>(context.step));
  const auto threshold = static_cast<std::uint64_t>(std::llround(p * 0x1.0p32));
  const auto kept = static_cast<float>(1.0 / (1.0 - p));

  const std::int64_t count = samples == 0 ? 0 : x.numel() / samples;
  OwnOperator call("sluice::dropout_mask", {ids});
  at::Tensor mask = at::empty(x.sizes(), at::kFloat);
  auto* factors = mask.mutable_data_ptr<float>();
  parallel_for(0, samples, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      fill_sample(derive_key(layer_key, static_cast<std::uint64_t>(id[s])), threshold, kept, count,
                  factors + s * count);
    }
  });
  call.made({mask});
  return mask.to(x.device(), factor_type(x));
}

at::Tensor dropout(const at::Tensor& x, double p, std::string_view place, const ForwardContext& context) {
  if (!context.training || p == 0) return x;
  return (x * dropout_mask(x, p, place, context)).to(x.scalar_type());
}

}  // namespace sluice::nn
