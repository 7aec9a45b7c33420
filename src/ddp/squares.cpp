#include "ddp/squares.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/check.h"
#include "core/sum_in_float64.h"

namespace sluice::ddp {
namespace {

template <typename Number>
double squares_in_memory(const at::Tensor& flat) {
  return sum_of_blocks(
      flat.const_data_ptr<Number>(), flat.numel(), [](double number) { return number * number; },
      [](auto begin, auto end, auto grain, const auto& work) { at::parallel_for(begin, end, grain, work); });
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
      flat.scalar_type() == at::kFloat ? squares_in_memory<float>(flat) : squares_in_memory<double>(flat);
  return at::full({}, sum, at::TensorOptions().dtype(at::kDouble));
}

}  // namespace sluice::ddp
