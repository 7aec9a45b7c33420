#include "measure/bf16_cost.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>

#include "core/clock.h"
#include "nn/gemm.h"

namespace sluice::measure {
namespace {

double seconds_of_product(at::ScalarType type) {
  constexpr std::int64_t kSize = 256;
  constexpr int kTimes = 5;  // the fastest counts, to exclude other load
  const at::Tensor a = at::ones({kSize, kSize}, type), b = at::ones({kSize, kSize}, type);
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    const Nanoseconds begin = now_ns();
    const at::Tensor product = nn::linear_forward(a, b, std::nullopt);
    least = std::min(least, to_s(now_ns() - begin));
  }
  return least;
}

}  // namespace

double bf16_slowdown() {
  const at::NoGradGuard no_grad;
  return seconds_of_product(at::kBFloat16) / seconds_of_product(at::kFloat);
}

}  // namespace sluice::measure
