// not_finite: compares where two tensors are NaN or infinite, and their other values loosely.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace sluice::nn {

inline const std::vector<double>& not_finite_values() {
  static const std::vector<double> kValues{std::numeric_limits<double>::quiet_NaN(),
                                           std::numeric_limits<double>::infinity(),
                                           -std::numeric_limits<double>::infinity()};
  return kValues;
}

// A copy with the value first, in the middle or last (which = 0, 1, 2).
inline at::Tensor with_value_at(const at::Tensor& tensor, int which, double value) {
  at::Tensor copy = tensor.detach().clone();
  const std::int64_t position = which == 0 ? 0 : which == 1 ? tensor.numel() / 2 : tensor.numel() - 1;
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()));
  std::int64_t rest = position;
  for (std::int64_t d = tensor.dim() - 1; d >= 0; --d) {
    index[static_cast<std::size_t>(d)] = rest % tensor.size(d);
    rest /= tensor.size(d);
  }
  at::Tensor element = copy;
  for (const std::int64_t i : index) element = element.select(0, i);
  element.fill_(value);
  return copy;
}

// kNowhere: results that are finite in the reference are finite in ours. kInItsRow: except in rows of the first
// dimension in which the reference has a NaN or infinite value.
enum class MaySpread { kNowhere, kInItsRow };

inline void expect_same_not_finite(const at::Tensor& ours, const at::Tensor& reference, MaySpread spread,
                                   const std::string& what) {
  ASSERT_EQ(ours.sizes(), reference.sizes()) << what;
  const at::Tensor bad = ours.isfinite().logical_not(), expected = reference.isfinite().logical_not();
  EXPECT_EQ(expected.logical_and(bad.logical_not()).sum().item<std::int64_t>(), 0)
      << what << ": became numbers, of " << expected.sum().item<std::int64_t>() << " that are none";
  at::Tensor allowed = expected;
  if (spread == MaySpread::kInItsRow && ours.dim() > 0) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(ours.dim()), 1);
    sizes[0] = ours.size(0);
    allowed = expected.reshape({ours.size(0), -1}).any(1).view(sizes).expand_as(ours);
  }
  EXPECT_EQ(bad.logical_and(allowed.logical_not()).sum().item<std::int64_t>(), 0) << what << ": ruined numbers";
  const at::Tensor both = bad.logical_or(expected).logical_not();
  const at::Tensor numbers = reference.masked_select(both);
  if (numbers.numel() == 0) return;
  const double size = std::max(1.0, numbers.abs().max().item<double>());
  EXPECT_LE((ours.masked_select(both) - numbers).abs().max().item<double>(), 1e-3 * size) << what << ": other numbers";
}

}  // namespace sluice::nn
