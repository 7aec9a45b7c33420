#include "ddp/squares.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/check.h"
#include "core/divided_up.h"
#include "core/sum_in_float64.h"

namespace sluice::ddp {
namespace {

// Blocks of a fixed size, added in order: the bits do not depend on the number of threads.
template <typename Number>
double squares_of_blocks(const at::Tensor& flat) {
  constexpr std::int64_t kBlock = 1 << 16, kBlocksOfThread = 8;
  const Number* const numbers = flat.const_data_ptr<Number>();
  std::vector<double> sums(divided_up(flat.numel(), kBlock));
  at::parallel_for(0, std::ssize(sums), kBlocksOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      sums[i] = sum_in_float64(numbers + i * kBlock, std::min(kBlock, flat.numel() - i * kBlock),
                               [](double number) { return number * number; });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// linalg_vector_norm copies its input if the result has another type. Blocks bound the size of that copy.
at::Tensor squares_on_device(const at::Tensor& flat) {
  constexpr std::int64_t kBlock = 1 << 22;
  at::Tensor sum = at::zeros({}, flat.options().dtype(at::kDouble));
  for (const at::Tensor& block : flat.split(kBlock))
    sum += at::linalg_vector_norm(block, 2, {}, false, at::kDouble).square();
  return sum;
}

}  // namespace

at::Tensor squares_of(const at::Tensor& flat) {
  check(flat.is_contiguous() && (flat.scalar_type() == at::kFloat || flat.scalar_type() == at::kDouble),
        "a contiguous buffer of float32 or float64");
  if (!flat.is_cpu()) return squares_on_device(flat);
  const double sum =
      flat.scalar_type() == at::kFloat ? squares_of_blocks<float>(flat) : squares_of_blocks<double>(flat);
  return at::full({}, sum, at::TensorOptions().dtype(at::kDouble));
}

}  // namespace sluice::ddp
