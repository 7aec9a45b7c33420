#include "nn/init.h"

#include <ATen/Dispatch.h>

#include <cmath>

#include "core/rng.h"

namespace sluice::nn {

Init Init::kaiming_fan_out(std::int64_t fan_out) { return normal(std::sqrt(2.0 / static_cast<double>(fan_out))); }

Init Init::uniform_fan_in(std::int64_t fan_in) { return uniform(1.0 / std::sqrt(static_cast<double>(fan_in))); }

at::Tensor draw(const Init& init, at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed,
                const std::string& name) {
  at::Tensor values = at::full(sizes, init.scale, dtype);
  if (init.kind == Init::Kind::kConstant) return values;
  RngStream rng(derive_key(derive_key(seed, hash_name("init")), hash_name(name)));
  // Draws directly in the target type: for VGG's largest weight a float64 copy would take 0.8 GB more.
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, dtype, "draw", [&] {
    auto* data = values.mutable_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const double unit = init.kind == Init::Kind::kNormal ? rng.normal() : 2.0 * rng.uniform() - 1.0;
      data[i] = static_cast<scalar_t>(init.scale * unit);
    }
  });
  return values;
}

}  // namespace sluice::nn
