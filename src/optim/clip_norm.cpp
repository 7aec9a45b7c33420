#include "optim/clip_norm.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/sum_in_float64.h"

namespace sluice::optim {
namespace {

// ATen's norm adds up as many parts as the calling thread may use threads, so its last bits depend on that.
template <typename Number>
double powers_in_memory(const at::Tensor& flat, int power) {
  return sum_of_blocks(
      flat.const_data_ptr<Number>(), flat.numel(),
      [power](double number) { return power == 2 ? number * number : std::abs(number); },
      [](auto begin, auto end, auto grain, const auto& work) { at::parallel_for(begin, end, grain, work); });
}

double sum_of_powers(const at::Tensor& flat, int power) {
  if (flat.is_cpu() && flat.is_contiguous()) {
    if (flat.scalar_type() == at::kFloat) return powers_in_memory<float>(flat, power);
    if (flat.scalar_type() == at::kDouble) return powers_in_memory<double>(flat, power);
  }
  if (flat.numel() == 0) return 0;
  // LibTorch's GPU kernel for this sums in float64 without a copy. Its index is int32, so larger tensors are split.
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return at::stack(at::_foreach_norm(flat.split(kMost), power, at::kDouble)).pow(power).sum().item<double>();
}

}  // namespace

double sum_of_squares(const at::Tensor& flat) { return sum_of_powers(flat, 2); }

double sum_of_magnitudes(const at::Tensor& flat) { return sum_of_powers(flat, 1); }

bool is_finite(const at::Tensor& flat) {
  if (flat.numel() == 0) return true;
  const auto [least, most] = at::aminmax(flat);  // both are NaN if an element is
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

double clip_factor(double norm, double most) {
  constexpr double kEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_
  return std::min(1.0, most / (norm + kEpsilon));
}

}  // namespace sluice::optim
