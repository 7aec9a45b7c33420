// Sums over processes in the order of a tree, against the definition. Threads stand in for processes.
#include "ddp/tree_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "core/error.h"

namespace sluice::ddp {
namespace {

constexpr int kBuckets = 4;
constexpr comm::TimeLimits kLimits{std::chrono::minutes(1), std::chrono::minutes(1)};
const std::vector<std::int64_t> kSizes{1, 16, 1000, 70'001};

at::Tensor leaf_of(std::int64_t leaf, int bucket, int step, bool in_bf16) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 * step + 100 * bucket + leaf));
  const at::Tensor values = at::randn({kSizes[bucket]}, generator, at::kFloat);
  const at::Tensor wide = values * at::pow(10, at::randn({kSizes[bucket]}, generator, at::kFloat) * 3);
  return in_bf16 ? wide.to(at::kBFloat16).to(at::kFloat) : wide;
}

at::Tensor sum_of(const TreeNode& node, std::int64_t leaves, int bucket, int step, bool in_bf16) {
  if (node.level == 0) return leaf_of(node.index, bucket, step, in_bf16);
  const TreeNode left{node.level - 1, node.index * 2}, right{node.level - 1, node.index * 2 + 1};
  const at::Tensor sum = sum_of(left, leaves, bucket, step, in_bf16);
  if (leaves_of(right, leaves).size() == 0) return sum;
  const at::Tensor both = sum + sum_of(right, leaves, bucket, step, in_bf16);
  return in_bf16 ? both.to(at::kBFloat16).to(at::kFloat) : both;
}

void expect_tree(int ranks, std::int64_t leaves, bool in_bf16) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(ranks, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, ranks, port), {}, kLimits);
    std::vector<at::Tensor> buckets;
    for (const std::int64_t size : kSizes) buckets.push_back(at::zeros({size}));
    TreeExchange exchange(processes.make_communicator("buckets"), {}, buckets, in_bf16);
    std::vector<std::vector<TreeNode>> nodes;
    for (int process = 0; process < ranks; ++process)
      nodes.push_back(nodes_within(part_range(leaves, ranks, process), leaves));
    std::mt19937 dice(static_cast<unsigned>(rank));
    std::vector<int> order(kBuckets);
    std::iota(order.begin(), order.end(), 0);
    for (int step = 0; step < 4; ++step) {
      exchange.begin_step(nodes, leaves);
      std::ranges::shuffle(order, dice);
      for (const int bucket : order) {
        std::vector<at::Tensor> sums;
        for (const TreeNode& node : nodes[static_cast<std::size_t>(rank)]) {
          // The first sum is in the bucket, as that of replica 0.
          sums.push_back(sums.empty() ? buckets[static_cast<std::size_t>(bucket)] : at::zeros({kSizes[bucket]}));
          sums.back().copy_(sum_of(node, leaves, bucket, step, in_bf16));
        }
        exchange.ready(bucket, {}, sums);
      }
      EXPECT_EQ(exchange.wait().size(), kBuckets);
      const TreeNode root = nodes_within({0, leaves}, leaves).front();
      for (int bucket = 0; bucket < kBuckets; ++bucket) {
        EXPECT_TRUE(at::equal(buckets[static_cast<std::size_t>(bucket)], sum_of(root, leaves, bucket, step, in_bf16)))
            << ranks << " ranks, " << leaves << " leaves, rank " << rank << ", step " << step << ", bucket " << bucket;
      }
    }
  });
  EXPECT_THAT(failures, testing::Each(""));
}

TEST(TreeExchange, AddsUpInTheOrderOfTheTree) {
  for (const auto& [ranks, leaves] : std::vector<std::pair<int, std::int64_t>>{{2, 2}, {2, 7}, {3, 6}, {4, 8}, {5, 13}})
    expect_tree(ranks, leaves, /*in_bf16=*/false);
}

TEST(TreeExchange, ProcessesWithoutALeafReceiveTheSum) { expect_tree(4, 2, /*in_bf16=*/false); }

TEST(TreeExchange, InBfloat16NothingIsRoundedButTheSums) {
  expect_tree(2, 2, /*in_bf16=*/true);
  expect_tree(3, 7, /*in_bf16=*/true);
}

TEST(TreeExchange, AProcessThatDoesNotJoinEndsTheWait) {
  const int port = comm::test::free_port();
  const comm::TimeLimits limits{std::chrono::seconds(20), std::chrono::seconds(1)};
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {}, limits);
    const at::Tensor bucket = at::ones({100});
    TreeExchange exchange(processes.make_communicator("buckets"), {}, {bucket}, false);
    exchange.begin_step({{{1, 0}}, {{0, 2}}}, 3);
    if (rank == 0) {
      exchange.ready(0, {}, {bucket});
      EXPECT_THROW(static_cast<void>(exchange.wait()), PeerError);
      EXPECT_THROW(exchange.begin_step({{{1, 0}}, {{0, 2}}}, 3), PeerError) << "messages of that step may still come";
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    }
  });
  EXPECT_THAT(failures, testing::Each(""));
}

}  // namespace
}  // namespace sluice::ddp
