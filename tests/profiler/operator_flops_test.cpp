#include "profiler/operator_flops.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace sluice::profiler {
namespace {

TEST(OperatorFlops, AreThoseOfClosedForms) {
  const auto flops = [](const char* name, const CallShapes& call) { return flop_formula(name)(call); };
  EXPECT_EQ(flops("aten::mm", {{{3, 5}, {5, 7}}, {}, {{3, 7}}}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("mkldnn::_linear_pointwise", {{{2, 3, 5}, {7, 5}, {}}, {}, {{2, 3, 7}}}), 2 * 6 * 5 * 7);
  // 4 images, 6 to 10 channels of 8x8, 3x3: as the direct algorithm.
  const double convolution = 2.0 * 4 * 10 * 64 * 6 * 9;
  EXPECT_EQ(flops("sluice::winograd_convolution", {{{4, 6, 8, 8}, {10, 6, 3, 3}, {}}, {}, {{4, 10, 8, 8}}}),
            convolution);
  EXPECT_EQ(flops("sluice::winograd_input_gradient", {{{4, 10, 8, 8}, {10, 6, 3, 3}}, {}, {{4, 6, 8, 8}}}),
            convolution);
  EXPECT_EQ(flops("sluice::winograd_weight_gradient", {{{4, 10, 8, 8}, {4, 6, 8, 8}}, {}, {{10, 6, 3, 3}}}),
            convolution);
  // Scores and their use: 2 products of [queries, width] and [keys, width] in each sample; backward 4.
  EXPECT_EQ(flops("sluice::attention", {{{}, {2, 9, 3 * 16}}, {}, {{2, 9, 16}}}), 2 * 2.0 * 2 * 9 * 9 * 16);
  EXPECT_EQ(flops("sluice::attention", {{{2, 1, 16}, {2, 9, 2 * 16}}, {}, {{2, 1, 16}}}), 2 * 2.0 * 2 * 1 * 9 * 16);
  EXPECT_EQ(flops("sluice::attention_backward", {{{2, 9, 16}, {}, {2, 9, 3 * 16}, {2, 4, 96}}, {}, {}}),
            4 * 2.0 * 2 * 9 * 9 * 16);
  EXPECT_THROW(static_cast<void>(flops("aten::mm", {})), std::out_of_range);
  EXPECT_THROW(static_cast<void>(flops("aten::convolution", {{{}, {}}, {}, {{}}})), std::out_of_range);
  EXPECT_EQ(flop_formula("aten::relu"), nullptr);
  EXPECT_EQ(flop_formula("aten::m"), nullptr);
}

}  // namespace
}  // namespace sluice::profiler
