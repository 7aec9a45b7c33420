#include "nn/flops.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace sluice::nn {
namespace {

thread_local FlopCount counted{};

}  // namespace

void count_product(ProductKind kind, double multiply_adds, const at::Tensor& a, const at::Tensor& b) {
  int products = 1;
  if (at::GradMode::is_enabled()) {
    if (a.requires_grad()) ++products;
    if (b.requires_grad()) ++products;
  }
  counted[static_cast<std::size_t>(kind)] += 2 * multiply_adds * products;
}

UncountedFlops::UncountedFlops() : before_(counted) {}
UncountedFlops::~UncountedFlops() { counted = before_; }

FlopCount take_flops() { return std::exchange(counted, {}); }

void add_flops(const FlopCount& flops) { add_to(counted, flops); }

}  // namespace sluice::nn
