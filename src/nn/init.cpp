#include "nn/init.h"

#include <cmath>

#include "core/rng.h"

namespace sluice::nn {

Init Init::kaiming_fan_out(std::int64_t fan_out) { return normal(std::sqrt(2.0 / static_cast<double>(fan_out))); }

Init Init::uniform_fan_in(std::int64_t fan_in) { return uniform(1.0 / std::sqrt(static_cast<double>(fan_in))); }

at::Tensor draw(const Init& init, at::IntArrayRef sizes, std::uint64_t seed, const std::string& name) {
  at::Tensor values = at::full(sizes, init.scale, at::kDouble);
  if (init.kind == Init::Kind::kConstant) return values;
  RngStream rng(derive_key(derive_key(seed, hash_name("init")), hash_name(name)));
  auto* data = values.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    data[i] *= init.kind == Init::Kind::kNormal ? rng.normal() : 2.0 * rng.uniform() - 1.0;
  }
  return values;
}

}  // namespace sluice::nn
