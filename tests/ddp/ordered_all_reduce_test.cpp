// Buckets that become ready in another order in every process are summed all the same. Threads stand in for processes.
#include "ddp/ordered_all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "comm/processes.h"
#include "comm/ranks.h"

namespace sluice::ddp {
namespace {

constexpr int kRanks = 3;
constexpr int kBuckets = 5;
constexpr comm::TimeLimits kLimits{std::chrono::minutes(1), std::chrono::minutes(1)};

TEST(OrderedAllReduce, AddsUpWhateverTheOrderInWhichBucketsBecomeReady) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(kRanks, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, kRanks, port), {}, kLimits);
    std::vector<at::Tensor> buckets;
    for (int i = 0; i < kBuckets; ++i)
      buckets.push_back(at::zeros({10 * (i + 1)}));  // a sum of the wrong ones would not fit
    OrderedAllReduce sums(processes.make_communicator("buckets"), {}, buckets, {});
    std::mt19937 dice(rank);
    std::vector<int> order(kBuckets);
    std::iota(order.begin(), order.end(), 0);
    for (int step = 0; step < 20; ++step) {
      for (int i = 0; i < kBuckets; ++i) buckets[i].fill_(100 * step + 10 * i + rank);
      std::ranges::shuffle(order, dice);
      sums.begin_step();
      for (const int i : order) sums.ready(i, {});
      (void)sums.wait();
      for (int i = 0; i < kBuckets; ++i) {
        const auto expected = static_cast<float>(kRanks * (100 * step + 10 * i) + kRanks * (kRanks - 1) / 2);
        EXPECT_TRUE(at::equal(buckets[i], at::full_like(buckets[i], expected))) << "step " << step << " bucket " << i;
      }
    }
  });
  EXPECT_THAT(failures, testing::Each(""));
}

TEST(OrderedAllReduce, AsBfloat16TheSumsAreAsNearAsStatedAndTheSameInAll) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(kRanks, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, kRanks, port), {}, kLimits);
    const auto of_rank = [](int r, int bucket) {
      auto generator = at::detail::createCPUGenerator(100 * r + bucket);
      const at::Tensor values = at::randn({1000 + bucket}, generator, at::kFloat);
      return values * at::pow(10, at::randn({1000 + bucket}, generator, at::kFloat) * 3);  // over many magnitudes
    };
    std::vector<at::Tensor> buckets;
    for (int i = 0; i < kBuckets; ++i) buckets.push_back(of_rank(rank, i));
    OrderedAllReduce sums(processes.make_communicator("buckets"), {}, buckets, {.sends_bf16 = true});
    const auto check = processes.make_communicator("check");
    for (int step = 0; step < 2; ++step) {
      for (int i = 0; i < kBuckets; ++i) buckets[i].copy_(of_rank(rank, i));
      sums.begin_step();
      for (int i = kBuckets; i-- > 0;) sums.ready(i, {});
      EXPECT_EQ(sums.wait().size(), kBuckets);
      for (int i = 0; i < kBuckets; ++i) {
        at::Tensor exact = at::zeros({1000 + i}, at::kDouble), magnitudes = exact.clone();
        for (int r = 0; r < kRanks; ++r) {
          exact += of_rank(r, i).to(at::kDouble);
          magnitudes += of_rank(r, i).to(at::kDouble).abs();
        }
        const at::Tensor error = (buckets[i].to(at::kDouble) - exact).abs();
        const double second_order = 1 + 2 * kRanks / 256.0;
        EXPECT_TRUE((error <= magnitudes * (kRanks * second_order / 256)).all().item<bool>()) << i;
        EXPECT_GT((error / magnitudes).max().item<double>(), 1.0 / 512) << "these would not be bfloat16";
        for (const at::Tensor& theirs : check->gather(buckets[i], 0)) EXPECT_TRUE(at::equal(theirs, buckets[i]));
      }
    }
  });
  EXPECT_THAT(failures, testing::Each(""));
}

}  // namespace
}  // namespace sluice::ddp
