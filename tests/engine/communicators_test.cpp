// Which communicators there are, and when they are made anew. Gloo stands for NCCL: what is made for a GPU is not used
// on it.
#include "engine/communicators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "comm/ranks.h"
#include "core/error.h"
#include "engine/make_sync.h"

namespace sluice::engine {
namespace {

using device::Device;
using testing::ElementsAre;

constexpr std::chrono::seconds kLimit(20);

Device cuda(int index) { return {device::DeviceKind::kCuda, index}; }

// Runs body(communicators, rank) in two processes, for which threads stand in.
template <typename Body>
void run_two(const Body& body) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {}, {kLimit, kLimit});
    Communicators communicators(processes, comm::Collectives::kGloo);
    body(communicators, rank);
    communicators.get(kSmallSums)->barrier();
  });
  EXPECT_THAT(failures, testing::Each(""));
}

void expect_connected(const Communicators::Made& made, int rank) {
  const at::Tensor number = at::full({1}, rank);
  made->broadcast(number, /*root=*/1);
  EXPECT_EQ(number.item<int>(), 1);
}

// A plan with fewer slots used to leave rank 0's stage on its GPU and to move rank 1's: rank 1 connected alone.
TEST(Communicators, OneWhoseGpuChangesInOneProcessIsMadeAnewInAll) {
  run_two([](Communicators& communicators, int rank) {
    std::vector<Communicators::Made> made;
    for (const int gpu : {2 * rank, rank, rank, 2 * rank}) {
      communicators.connect({{"a", cuda(gpu)}, {"b", cuda(5)}});
      made.push_back(communicators.get("a", cuda(gpu)));
      expect_connected(made.back(), rank);
      expect_connected(communicators.get("b", cuda(5)), rank);
    }
    EXPECT_NE(made[0], made[1]);
    EXPECT_EQ(made[1], made[2]) << "nothing moved";
    EXPECT_NE(made[0], made[3]);
    EXPECT_NE(made[1], made[3]);
  });
}

TEST(Communicators, InTheMemoryOfTheCpuOneIsEnough) {
  run_two([](Communicators& communicators, int rank) {
    const auto first = communicators.get("a", {device::DeviceKind::kCpu, 0});
    communicators.connect({{"a", {device::DeviceKind::kCpu, 1}}});
    EXPECT_EQ(communicators.get("a", {device::DeviceKind::kCpu, 2}), first);
    expect_connected(first, rank);
  });
}

TEST(StagesByLine, StagesOfAGpuShareACommunicator) {
  EXPECT_THAT(stages_by_line({cuda(0), cuda(1), cuda(0), cuda(1)}, {2, 3, 0, 1}),
              ElementsAre(ElementsAre(2, 0), ElementsAre(3, 1)));
  EXPECT_THAT(stages_by_line({cuda(4), cuda(5), cuda(5), cuda(4)}, {}),
              ElementsAre(ElementsAre(3, 0), ElementsAre(2, 1)));
  const Device cpu{device::DeviceKind::kCpu, 0};
  EXPECT_THAT(stages_by_line({cpu, cpu}, {1, 0}), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(ConnectStages, ProcessesWhoseStagesShareGpusOtherwiseAreRefused) {
  run_two([](Communicators& communicators, int rank) {
    connect_stages(communicators, {cuda(rank), cuda(3), cuda(rank)});
    try {
      connect_stages(communicators, {cuda(0), cuda(rank)});
      ADD_FAILURE() << "one line and two were to meet";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 maps its stages to GPUs differently from rank 0"));
    }
  });
}

}  // namespace
}  // namespace sluice::engine
