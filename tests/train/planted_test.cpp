// Sleeps of known length, planted in the phases of real steps, are found where they are and nowhere else. A planted
// layer notes how long it really slept, so what is compared does not depend on how punctually the machine wakes a
// thread; of several steps the best must agree within 2 %, because other programs may take the processor between the
// end of a sleep and the next reading of the clock, but a phase that is not measured right is wrong in every step.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "comm/ranks.h"
#include "core/concat.h"
#include "sleepy_layers.h"

namespace sluice::train {
namespace {

using profiler::Part;
using profiler::SlotBreakdown;
using profiler::StepBreakdown;
using std::chrono::milliseconds;

constexpr int kSteps = 6;
constexpr int kMostSteps = 50;
constexpr double kMostError = 0.02;

// The smallest relative error of each thing that is compared, over the steps.
class Comparison {
 public:
  void expect(const std::string& what, Nanoseconds found, Nanoseconds planted) {
    const double error = std::abs(static_cast<double>(found - planted)) / static_cast<double>(planted);
    const auto [entry, is_new] = best_.try_emplace(what, error);
    entry->second = std::min(entry->second, error);
  }
  // Further steps are made while a busy machine has disturbed all there were.
  [[nodiscard]] bool wants_step(int number) const {
    return number < kSteps || (number < kMostSteps &&
                               std::ranges::any_of(best_, [](const auto& entry) { return entry.second > kMostError; }));
  }
  void check_all() const {
    for (const auto& [what, error] : best_) EXPECT_LE(error, kMostError) << what;
  }

 private:
  std::map<std::string, double> best_;
};

void expect_parts_add_up(const StepBreakdown& breakdown) {
  EXPECT_EQ(breakdown.dropped, 0U);
  for (const SlotBreakdown& stage : breakdown.slots) {
    EXPECT_EQ(std::accumulate(stage.parts.begin(), stage.parts.end(), Nanoseconds{0}), breakdown.step);
    for (const Nanoseconds part : stage.parts) EXPECT_GE(part, 0);
  }
}

void expect_forward_and_backward_are_found(Plantation planted) {
  engine::Composition grid = compose_sleepy(planted, 3);
  engine::TrainStep step(grid, {});
  Comparison comparison;
  for (int number = 0; comparison.wants_step(number); ++number) {
    for (auto& of_replica : planted) {
      for (Planted& p : of_replica) p.reset();
    }
    const StepBreakdown breakdown = run_step(grid, step, batch_of(12), number);
    expect_parts_add_up(breakdown);
    for (const SlotBreakdown& stage : breakdown.slots) {
      const Planted& p = planted[index(stage.replica)][index(stage.device)];
      const std::string where = concat("replica ", index(stage.replica), " stage ", index(stage.device));
      comparison.expect(where + " forward", stage.forward(), p.slept_forward);
      comparison.expect(where + " backward", stage.backward(), p.slept_backward);
    }
  }
  comparison.check_all();
}

TEST(PlantedSleeps, ForwardAndBackwardOfEveryStageAndReplicaAreFound) {
  expect_forward_and_backward_are_found({{{milliseconds(20), milliseconds(40)}, {milliseconds(30), milliseconds(50)}},
                                         {{milliseconds(24), milliseconds(36)}, {milliseconds(18), milliseconds(60)}}});
}

TEST(PlantedProducts, ForwardAndBackwardOfEveryStageAreFound) {
  expect_forward_and_backward_are_found({{{.products = 40}, {.products = 70}}});
}

// One stage does nothing but wait for the other: its bubble is what the other slept, less the little that overlaps.
TEST(PlantedSleeps, AnUnevenPartitionIsBubbleOfTheQuickStageAndTheSlowOneIsNamed) {
  Plantation planted{{{milliseconds(0), milliseconds(0)}, {milliseconds(15), milliseconds(30)}}};
  engine::Composition grid = compose_sleepy(planted, 4);
  engine::TrainStep step(grid, {});
  Comparison comparison;
  for (int number = 0; comparison.wants_step(number); ++number) {
    planted[0][1].reset();
    const StepBreakdown breakdown = run_step(grid, step, batch_of(8), number);
    expect_parts_add_up(breakdown);
    const Planted& slow = planted[0][1];
    comparison.expect("bubble of stage 0", breakdown.slots[0].bubble(), slow.slept_forward + slow.slept_backward);
    EXPECT_EQ(breakdown.slowest_device(), DeviceId{1});
  }
  comparison.check_all();
}

TEST(PlantedSleeps, AStageThatIs30PercentSlowerIsNamed) {
  Plantation planted{{{milliseconds(10), milliseconds(20)},
                      {milliseconds(10), milliseconds(20)},
                      {milliseconds(13), milliseconds(26)},
                      {milliseconds(10), milliseconds(20)}}};
  engine::Composition grid = compose_sleepy(planted, 4);
  engine::TrainStep step(grid, {});
  for (int number = 0; number < kSteps; ++number)
    EXPECT_EQ(run_step(grid, step, batch_of(8), number).slowest_device(), DeviceId{2});
}

TEST(PlantedSleeps, TheQuickReplicaWaitsForTheSlowOne) {
  Plantation planted{{{milliseconds(10), milliseconds(10)}}, {{milliseconds(30), milliseconds(50)}}};
  engine::Composition grid = compose_sleepy(planted, 1);
  engine::TrainStep step(grid, {});
  Comparison comparison;
  for (int number = 0; comparison.wants_step(number); ++number) {
    for (auto& of_replica : planted) of_replica[0].reset();
    const StepBreakdown breakdown = run_step(grid, step, batch_of(8), number);
    const auto slept = [&](int replica) {
      return planted[replica][0].slept_forward + planted[replica][0].slept_backward;
    };
    comparison.expect("skew of replica 0", breakdown.slots[0][Part::kSkew], slept(1) - slept(0));
    EXPECT_LE(breakdown.slots[1][Part::kSkew], breakdown.step / 20);
  }
  comparison.check_all();
}

// Threads stand in for two processes with collectives of their own; the second is slower.
TEST(PlantedSleeps, TheQuickProcessWaitsForTheSlowOneAndKnowsThatItIsNotTransfer) {
  const int port = comm::test::free_port();
  std::vector<Plantation> planted{{{{milliseconds(10), milliseconds(10)}}}, {{{milliseconds(40), milliseconds(70)}}}};
  std::vector<std::vector<StepBreakdown>> breakdowns(2);
  std::vector<std::vector<Nanoseconds>> slept(2);
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {},
                              {std::chrono::minutes(1), std::chrono::minutes(1)});
    engine::Composition grid = compose_sleepy(planted[rank], 1, &processes);
    engine::TrainStep step(grid, {});
    for (int number = 0; number < kSteps + 3; ++number) {
      grid.sync->sum(at::zeros({1}));  // both begin together
      Planted& own = planted[rank][0][0];
      own.reset();
      breakdowns[rank].push_back(run_step(grid, step, {batch_of(4), 8}, number));
      slept[rank].push_back(own.slept_forward + own.slept_backward);
    }
  });
  EXPECT_THAT(failures, testing::Each(""));
  Comparison comparison;
  Nanoseconds least_skew = std::numeric_limits<Nanoseconds>::max(), least_exchange = least_skew;
  for (int number = 3; number < kSteps + 3; ++number) {  // the first steps find out how the clocks differ
    const SlotBreakdown &quick = breakdowns[0][number].slots[0], &slow = breakdowns[1][number].slots[0];
    expect_parts_add_up(breakdowns[0][number]);
    comparison.expect("skew of the quick process", quick[Part::kSkew], slept[1][number] - slept[0][number]);
    least_skew = std::min(least_skew, slow[Part::kSkew]);
    least_exchange = std::min(least_exchange, quick[Part::kAllReduce]);
    EXPECT_EQ(breakdowns[0][number].late.rank, 1);
  }
  comparison.check_all();
  EXPECT_LE(least_skew, breakdowns[1].back().step / 10);
  EXPECT_LE(least_exchange, breakdowns[0].back().step / 10);
}

}  // namespace
}  // namespace sluice::train
