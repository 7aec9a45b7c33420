// compare: runs two versions of a function on the same inputs and compares outputs and gradients.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::nn {

using Tensors = std::vector<at::Tensor>;

// |a - b| / max(|b|, tiny), norms in float64, on any devices.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.to(at::kCPU, at::kDouble);
  return (a.to(at::kCPU, at::kDouble) - reference).norm().item<double>() /
         std::max(reference.norm().item<double>(), 1e-30);
}

// Bounds the norm of the difference relative to the exact norm or to 1, because some gradients are only rounding.
// exact: float64 on the CPU.
inline void expect_close(const at::Tensor& ours, const at::Tensor& exact, double tolerance, const char* what) {
  ASSERT_TRUE(ours.defined()) << what;
  ASSERT_EQ(ours.sizes(), exact.sizes()) << what;
  const double size = std::max(exact.norm().item<double>(), 1.0);
  EXPECT_LE((ours.to(at::kCPU, at::kDouble) - exact).norm().item<double>(), tolerance * size) << what;
}

struct Outcome {
  at::Tensor y;
  Tensors gradients;
};

// y = f(inputs) and the gradients of sum(y * upstream) for every input, where upstream depends on the shape alone.
template <typename Function>
Outcome run_with_gradients(const Function& f, const Tensors& inputs) {
  Tensors leaves;
  for (const auto& input : inputs) {
    leaves.push_back(input.detach().clone().requires_grad_());
  }
  const at::Tensor y = f(leaves);
  // In float64 for any y: rounding the argument of sin would give the two sides different gradients.
  const at::Tensor upstream =
      at::sin(at::arange(y.numel(), at::kDouble) * 0.7 + 0.3).view(y.sizes()).to(y.device(), y.scalar_type());
  (y * upstream).sum().backward();
  Outcome outcome{y.detach(), {}};
  for (const auto& leaf : leaves) outcome.gradients.push_back(leaf.grad());
  return outcome;
}

inline void expect_equal_outcomes(const Outcome& a, const Outcome& b, double tolerance) {
  ASSERT_EQ(a.y.sizes(), b.y.sizes());
  EXPECT_LE(relative_error(a.y, b.y), tolerance) << "output";
  for (std::size_t i = 0; i < b.gradients.size(); ++i) {
    ASSERT_TRUE(a.gradients[i].defined()) << "gradient of input " << i;
    ASSERT_EQ(a.gradients[i].sizes(), b.gradients[i].sizes()) << "gradient of input " << i;
    EXPECT_LE(relative_error(a.gradients[i], b.gradients[i]), tolerance) << "gradient of input " << i;
  }
}

template <typename Ours, typename Reference>
void expect_equal_gradients(const Ours& ours, const Reference& reference, const Tensors& inputs, double tolerance) {
  Tensors exact;
  for (const auto& input : inputs) exact.push_back(input.to(at::kDouble));
  expect_equal_outcomes(run_with_gradients(ours, inputs), run_with_gradients(reference, exact), tolerance);
}
inline constexpr double kFloatTolerance = 3e-6;
inline constexpr double kDoubleTolerance = 1e-12;

inline double tolerance_of(at::ScalarType type) { return type == at::kDouble ? kDoubleTolerance : kFloatTolerance; }

}  // namespace sluice::nn
