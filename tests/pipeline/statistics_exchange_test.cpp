#include "pipeline/statistics_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include <ATen/ATen.h>

#include "comm/processes.h"
#include "comm/ranks.h"

namespace sluice::pipeline {
namespace {

using namespace std::chrono_literals;

constexpr comm::TimeLimits kLimit{60s, 60s};

at::Tensor number(double value) { return at::full({1}, value, at::kDouble); }

// Large numbers that cancel: another order gives another sum.
TEST(StatisticsExchange, AddsUpInTheOrderOfReplicasWhoeverComesFirst) {
  const std::vector<double> shares{1e16, 1.0, -1e16};
  std::vector<int> arrival{0, 1, 2};
  do {
    StatisticsExchange exchange(3, nullptr);
    std::vector<std::future<std::optional<at::Tensor>>> sums;
    for (const int replica : arrival) {
      sums.push_back(std::async(std::launch::async, [&exchange, &shares, replica] {
        return exchange.sum(ReplicaId{replica}, number(shares[replica]));
      }));
      std::this_thread::sleep_for(5ms);  // likely enough that they come in this order
    }
    for (auto& sum : sums) EXPECT_EQ(sum.get()->item<double>(), (shares[0] + shares[1]) + shares[2]);
  } while (std::ranges::next_permutation(arrival).found);
}

TEST(StatisticsExchange, AReplicaThatRunsAheadWaitsForTheNextSum) {
  constexpr int kReplicas = 4, kSums = 200;
  StatisticsExchange exchange(kReplicas, nullptr);
  std::vector<std::future<int>> wrong;
  for (int replica = 0; replica < kReplicas; ++replica) {
    wrong.push_back(std::async(std::launch::async, [&exchange, replica] {
      int count = 0;
      for (int i = 0; i < kSums; ++i) {
        const auto sum = exchange.sum(ReplicaId{replica}, number(i * 10 + replica));
        count += sum && sum->item<double>() == kReplicas * i * 10 + 6 ? 0 : 1;
      }
      return count;
    }));
  }
  for (auto& of_replica : wrong) EXPECT_EQ(of_replica.get(), 0);
}

TEST(StatisticsExchange, CloseWakesThoseWhoWaitAndRefusesThoseWhoCome) {
  StatisticsExchange exchange(3, nullptr);
  std::vector<std::future<std::optional<at::Tensor>>> waiting;
  for (int replica = 0; replica < 2; ++replica) {
    waiting.push_back(
        std::async(std::launch::async, [&exchange, replica] { return exchange.sum(ReplicaId{replica}, number(1)); }));
  }
  std::this_thread::sleep_for(20ms);
  exchange.close();
  for (auto& sum : waiting) EXPECT_EQ(sum.get(), std::nullopt);
  EXPECT_EQ(exchange.sum(ReplicaId{2}, number(1)), std::nullopt) << "although it is the last one";
}

TEST(StatisticsExchange, OneReplicaOfEachProcessSpeaksWithTheOthers) {
  constexpr int kProcesses = 3, kReplicas = 2;
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(kProcesses, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, kProcesses, port), {}, kLimit);
    StatisticsExchange exchange(kReplicas, processes.make_communicator("statistics"));
    std::atomic<int> speakers = 0;
    const auto of_replica = [&](int replica) {
      return exchange.sum(ReplicaId{replica}, number(rank * kReplicas + replica + 1), [&] { ++speakers; });
    };
    auto first = std::async(std::launch::async, of_replica, 0);
    EXPECT_EQ(of_replica(1)->item<double>(), 21);  // 1 + ... + 6
    EXPECT_EQ(first.get()->item<double>(), 21);
    EXPECT_EQ(speakers, 1);
  });
  EXPECT_THAT(failures, testing::Each(""));
}

// A stage of this process has failed, or hangs, while another replica waits for a process that does not come.
TEST(StatisticsExchange, CloseEndsTheWaitForAnotherProcess) {
  const int port = comm::test::free_port();
  std::promise<void> has_left;
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {}, kLimit);
    const auto communicator = processes.make_communicator("statistics");
    if (rank == 1) return has_left.get_future().wait();  // its end then ends the operation too
    StatisticsExchange exchange(2, communicator);
    std::promise<void> waits;
    const auto of_replica = [&](int replica) {
      return exchange.sum(ReplicaId{replica}, number(1), [&] { waits.set_value(); });
    };
    auto first = std::async(std::launch::async, of_replica, 0), second = std::async(std::launch::async, of_replica, 1);
    waits.get_future().wait();
    EXPECT_EQ(first.wait_for(20ms), std::future_status::timeout);
    EXPECT_EQ(second.wait_for(0ms), std::future_status::timeout);
    exchange.close();
    EXPECT_EQ(first.get(), std::nullopt);
    EXPECT_EQ(second.get(), std::nullopt);
    has_left.set_value();
  });
  EXPECT_THAT(failures, testing::Each(""));
}

}  // namespace
}  // namespace sluice::pipeline
