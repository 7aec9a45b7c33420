// Gradients of micro-batches, added by replicas in any order, against the definition of the tree.
#include "pipeline/gradient_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace sluice::pipeline {
namespace {

constexpr std::int64_t kRows = 3, kColumns = 5, kElements = 32;  // of the flat tensor, with a gap behind the 15

// Over many magnitudes, so that another order gives other bits.
at::Tensor gradient_of(std::int64_t micro_batch) {
  auto generator = at::detail::createCPUGenerator(100 + static_cast<std::uint64_t>(micro_batch));
  const at::Tensor values = at::randn({kRows, kColumns}, generator, at::kFloat);
  return values * at::pow(10, at::randn({kRows, kColumns}, generator, at::kFloat) * 3);
}

at::Tensor rounded(const at::Tensor& tensor, bool to_bf16) {
  return to_bf16 ? tensor.to(at::kBFloat16).to(at::kFloat) : tensor;
}

at::Tensor by_definition(std::int64_t begin, std::int64_t width, std::int64_t leaves, bool in_bf16) {
  if (width == 1) return rounded(gradient_of(begin), in_bf16);
  const at::Tensor left = by_definition(begin, width / 2, leaves, in_bf16);
  const std::int64_t middle = begin + width / 2;
  return middle < leaves ? rounded(left + by_definition(middle, width / 2, leaves, in_bf16), in_bf16) : left;
}

TEST(GradientTree, SumsOfReplicasAreThoseOfTheDefinition) {
  std::mt19937 dice(3);
  for (const bool in_bf16 : {false, true}) {
    const GradientTree::Shape shape{{kRows, kColumns}, {1, kRows}, 8};  // column by column, behind another entry
    GradientTree tree(at::zeros({kElements}), {{{4}, {1}, 0}, shape});
    for (std::int64_t leaves = 1; leaves <= 13; ++leaves) {
      for (const std::int64_t parts : {1, 2, 3}) {
        for (std::int64_t part = 0; part < parts; ++part) {
          const NumberRange own = part_range(leaves, parts, part);
          tree.begin({own, leaves, in_bf16});
          std::vector<std::int64_t> order(static_cast<std::size_t>(own.size()));
          std::iota(order.begin(), order.end(), own.begin);
          std::ranges::shuffle(order, dice);
          for (const std::int64_t m : order) tree.add(1, m, gradient_of(m));
          const std::vector<TreeNode> nodes = nodes_within(own, leaves);
          ASSERT_GE(tree.nodes()->size(), nodes.size());
          for (std::size_t i = 0; i < nodes.size(); ++i) {
            const NumberRange covered = leaves_of(nodes[i], leaves);
            const at::Tensor expected =
                by_definition(covered.begin, std::int64_t{1} << nodes[i].level, leaves, in_bf16);
            EXPECT_TRUE(at::equal(shape.view((*tree.nodes())[i]), expected))
                << leaves << " micro-batches, part " << part << " of " << parts << ", node " << i;
          }
        }
      }
    }
  }
}

TEST(GradientTree, AMissingGradientCountsAsZeroAndBfloat16AsItsValue) {
  GradientTree tree(at::full({16}, 7.0F), {{{3}, {1}, 0}});
  tree.begin({{0, 3}, 3});
  tree.add(0, 0, {});
  tree.add(0, 1, at::full({3}, 1.0F));
  tree.add(0, 2, at::full({3}, 0.5F, at::kBFloat16));
  EXPECT_TRUE(at::equal(tree.nodes()->front().narrow(0, 0, 3), at::full({3}, 1.5F)));
  EXPECT_EQ(tree.nodes()->front()[5].item<float>(), 7) << "gaps are not touched";
  tree.begin({{0, 1}, 1});
  tree.add(0, 0, {});
  EXPECT_TRUE(at::equal(tree.nodes()->front().narrow(0, 0, 3), at::zeros({3})));
}

}  // namespace
}  // namespace sluice::pipeline
