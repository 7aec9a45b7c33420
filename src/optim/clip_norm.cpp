#include "optim/clip_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/divided_up.h"
#include "core/sum_in_float64.h"

namespace sluice::optim {
namespace {

constexpr std::int64_t kSummed = 1 << 16;  // elements of a block

// Blocks of a fixed size, added in order: the bits do not depend on the number of threads, as those of ATen's norm do.
template <typename Number>
double sum_of_blocks(const at::Tensor& flat, int power) {
  constexpr std::int64_t kBlocksOfThread = 8;
  const Number* const numbers = flat.const_data_ptr<Number>();
  std::vector<double> sums(static_cast<std::size_t>(divided_up(flat.numel(), kSummed)));
  at::parallel_for(0, std::ssize(sums), kBlocksOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      sums[b] = sum_in_float64(numbers + b * kSummed, std::min(kSummed, flat.numel() - b * kSummed),
                               [power](double number) { return power == 2 ? number * number : std::abs(number); });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double sum_of_powers(const at::Tensor& flat, int power) {
  if (flat.is_cpu() && flat.is_contiguous()) {
    if (flat.scalar_type() == at::kFloat) return sum_of_blocks<float>(flat, power);
    if (flat.scalar_type() == at::kDouble) return sum_of_blocks<double>(flat, power);
  }
  at::Tensor sum = at::zeros({}, flat.options().dtype(at::kDouble));
  for (const at::Tensor& block : flat.split(kSummed))  // bounds a copy that ATen makes of its input
    sum += at::linalg_vector_norm(block, power, {}, false, at::kDouble).pow(power);
  return sum.item<double>();
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
