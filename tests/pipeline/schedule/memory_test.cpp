#include "pipeline/schedule/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/holds.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/random_schedule.h"
#include "pipeline/schedule/shapes.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Memory, AWholeBackwardHoldsActivationsUntilItIsOver) {
  const Schedule schedule = make_1f1b({.stages = 3, .micro_batches = 8});
  const std::vector<StageBytes> stages{{1000, 10, 5}, {2000, 20, 5}, {3000, 40, 5}};
  EXPECT_THAT(peak_bytes(schedule, stages), ElementsAre(1000 + 3 * 10, 2000 + 2 * 20, 3000 + 40));
}

TEST(Memory, FromTheInputGradientOnOnlyTheStashIsHeld) {
  // Device 0: at most 2 activations (0F1), or 1 activation and 1 stash (0F2 after 0I1).
  const Schedule schedule = parse_schedule("0F0 0F1 0I0 0I1 0F2 0W0 0W1 0I2 0W2");
  EXPECT_THAT(peak_bytes(schedule, std::vector<StageBytes>{{0, 10, 3}}), ElementsAre(20));
  EXPECT_THAT(peak_bytes(schedule, std::vector<StageBytes>{{0, 10, 9}}), ElementsAre(28));
  EXPECT_THAT(peak_bytes(schedule, std::vector<StageBytes>{{0, 10, 30}}), ElementsAre(70));  // 2 stashes, 1 activation
}

TEST(Memory, AStashAsLargeAsTheActivationIsThePeakInFlight) {
  test::for_each_shape(5, 12, 3, [](const test::NamedShape& shape) {
    const Schedule schedule = shape.make();
    const std::vector<StageBytes> stages(static_cast<std::size_t>(schedule.stages), {0, 1, 1});
    const auto pairs = peak_in_flight(schedule);
    EXPECT_EQ(peak_bytes(schedule, stages), std::vector<std::int64_t>(pairs.begin(), pairs.end())) << shape.text();
  });
}

// While I runs the larger of the two is held: a position has a first half with the activation, a second with the stash.
std::int64_t most_bytes(const std::vector<Action>& actions, const std::vector<StageBytes>& stages) {
  std::vector<test::Hold> holds;
  std::set<StageId> owned;
  for (const auto& [of, life] : test::lives_of(actions)) {
    const StageBytes& stage = stages[static_cast<std::size_t>(index(of.first))];
    const bool is_split = life.release != life.gradient;
    holds.push_back({2 * life.forward, 2 * life.gradient + (is_split ? 0 : 1), stage.activation});
    if (is_split) holds.push_back({2 * life.gradient + 1, 2 * life.release + 1, stage.stash});
    if (owned.insert(of.first).second) holds.push_back({0, 2 * actions.size(), stage.fixed});
  }
  return test::most_at_once(holds);
}

TEST(Memory, RandomSchedulesHoldWhatTheirIntervalsSay) {
  test::Draw draw_of(31);
  int checked = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const Schedule schedule = test::random_schedule(draw_of, {.stages = 6, .micro_batches = 6, .devices = 3});
    if (!test::is_valid(schedule)) continue;
    std::vector<StageBytes> stages;
    for (int stage = 0; stage < schedule.stages; ++stage)
      stages.push_back({draw_of.between(0, 1000), draw_of.between(0, 100), draw_of.between(0, 100)});
    const auto peaks = peak_bytes(schedule, stages);
    for (std::size_t device = 0; device < peaks.size(); ++device)
      ASSERT_EQ(peaks[device], most_bytes(schedule.devices[device], stages)) << draw(schedule);
    ++checked;
  }
  EXPECT_GT(checked, 300);
}

TEST(Memory, WhatIsLentCountsUntilTheOtherStageIsSureToBeDoneWithIt) {
  const auto output = [](const char* text, const Lent& lent) {
    return peak_bytes(parse_schedule(text), std::vector<StageBytes>{{.lent_output = lent}, {}});
  };
  const Lent by_last{.until_last = 10}, by_gradient{.until_gradient = 10};
  EXPECT_THAT(output("0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2", by_last), ElementsAre(20, 0));
  // When 0I0 begins 1I0 is over, but who knows of 1W0? When 0I1 begins 1I1 is, and so 1W0.
  const char* split = "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2\n1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2";
  EXPECT_THAT(output(split, by_last), ElementsAre(30, 0));
  EXPECT_THAT(output(split, by_gradient), ElementsAre(20, 0));
  EXPECT_THAT(output("0F0 0F1 0I0 0W0 0I1 0W1 0F2 0I2 0W2\n1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2", by_last),
              ElementsAre(20, 0));
  // On one device it is known at once.
  EXPECT_THAT(output("0F0 1F0 1I0 0I0 1W0 0F1 1F1 1B1 0B1 0W0", by_last), ElementsAre(10));
  // Of an evaluation nobody says how far it is.
  EXPECT_THAT(output("0F0 0F1 0F2\n1F0 1F1 1F2", by_gradient), ElementsAre(30, 0));
}

TEST(Memory, AGradientIsLentFromTheEndOfTheActionThatMakesIt) {
  const auto gradient = [](const char* text, const Lent& lent) {
    return peak_bytes(parse_schedule(text), std::vector<StageBytes>{{}, {.lent_gradient = lent}});
  };
  // 0B0 may wait while 1F1 runs, and 1B1 with it; with 1F2 comes word that 0B0 is over.
  const Lent by_last{.until_last = 10}, by_gradient{.until_gradient = 10};
  EXPECT_THAT(gradient("0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2", by_last), ElementsAre(0, 20));
  // 0W0 and 0W1 come after all that stage 1 hears of.
  const char* split = "0F0 0F1 0I0 0I1 0F2 0W0 0W1 0I2 0W2\n1F0 1B0 1F1 1B1 1F2 1B2";
  EXPECT_THAT(gradient(split, by_gradient), ElementsAre(0, 20));
  EXPECT_THAT(gradient(split, by_last), ElementsAre(0, 30));
}

struct Loan {
  double from = 0, to = 0;
};
using Loans = std::map<std::pair<int, MicroBatchId>, Loan>;  // by the stage that lends

// In a run with these times.
struct LoansOfRun {
  Loans output_until_gradient, output_until_last, gradient_until_gradient, gradient_until_last;

  void note(const Action& action, const TimeSpan& span) {
    const std::pair own{index(action.stage), action.micro_batch};
    const std::pair before{own.first - 1, own.second}, after{own.first + 1, own.second};
    const auto use = [&](Loan& loan) { loan.to = std::max(loan.to, span.end); };
    if (action.op == Op::kForward) output_until_gradient[own].from = output_until_last[own].from = span.start;
    if (makes_input_gradient(action.op)) {
      use(output_until_gradient[own]), use(output_until_last[own]), use(output_until_gradient[before]);
      gradient_until_gradient[own].from = gradient_until_last[own].from = span.end;
      use(gradient_until_gradient[after]);
    }
    if (action.op == Op::kBackward || action.op == Op::kWeightGradient)
      use(output_until_last[before]), use(gradient_until_last[after]);
  }
};

LoansOfRun loans_of(const Schedule& schedule, const Simulation& run) {
  LoansOfRun loans;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (std::size_t i = 0; i < schedule.devices[device].size(); ++i)
      loans.note(schedule.devices[device][i], run.spans[device][i]);
  }
  return loans;
}

struct Rise {
  double time;
  std::int64_t bytes;  // a fall comes before a rise of the same time
  auto operator<=>(const Rise&) const = default;
};

// [device]
std::vector<std::int64_t> most_lent(const Schedule& schedule, const std::vector<StageBytes>& stages,
                                    const LoansOfRun& run) {
  std::vector<std::vector<Rise>> rises(schedule.devices.size());
  const std::vector<int> owners = stage_owners(schedule);
  const auto add = [&](const Loans& loans, Lent StageBytes::*lent, std::int64_t Lent::*until) {
    for (const auto& [of, loan] : loans) {
      if (of.first < 0 || of.first >= schedule.stages) continue;
      const auto stage = static_cast<std::size_t>(of.first);
      const std::int64_t bytes = stages[stage].*lent.*until;
      auto& on_device = rises[static_cast<std::size_t>(owners[stage])];
      on_device.push_back({loan.from, bytes});
      on_device.push_back({loan.to, -bytes});
    }
  };
  add(run.output_until_gradient, &StageBytes::lent_output, &Lent::until_gradient);
  add(run.output_until_last, &StageBytes::lent_output, &Lent::until_last);
  add(run.gradient_until_gradient, &StageBytes::lent_gradient, &Lent::until_gradient);
  add(run.gradient_until_last, &StageBytes::lent_gradient, &Lent::until_last);
  std::vector<std::int64_t> most;
  for (auto& on_device : rises) {
    std::ranges::sort(on_device);
    std::int64_t now = 0, peak = 0;
    for (const Rise& rise : on_device) peak = std::max(peak, now += rise.bytes);
    most.push_back(peak);
  }
  return most;
}

std::vector<StageBytes> random_loans(test::Draw& draw_of, int stages) {
  const auto lent = [&] { return Lent{draw_of.between(0, 100), draw_of.between(0, 100)}; };
  std::vector<StageBytes> bytes(static_cast<std::size_t>(stages));
  for (std::size_t stage = 0; stage + 1 < bytes.size(); ++stage)
    bytes[stage].lent_output = lent(), bytes[stage + 1].lent_gradient = lent();
  return bytes;
}

Costs random_times(test::Draw& draw_of, int stages) {
  Costs costs;
  for (int stage = 0; stage < stages; ++stage)
    costs.stages.push_back({draw_of.time(0.1, 10), draw_of.time(0.1, 10), draw_of.time(0.1, 100)});
  if (draw_of.between(0, 1) == 1) costs.link.latency = draw_of.time(0, 20);
  return costs;
}

TEST(Memory, NoTimesOfStagesAndLinksLendMore) {
  test::Draw draw_of(32);
  int checked = 0, reached = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const Schedule schedule = test::random_schedule(draw_of, {.stages = 5, .micro_batches = 5, .devices = 3});
    if (!test::is_valid(schedule)) continue;
    const auto stages = random_loans(draw_of, schedule.stages);
    const auto peaks = peak_bytes(schedule, stages);
    std::vector<std::int64_t> most(peaks.size(), 0);
    for (int run = 0; run < 20; ++run) {
      const Simulation times = simulate(schedule, random_times(draw_of, schedule.stages));
      const auto lent = most_lent(schedule, stages, loans_of(schedule, times));
      for (std::size_t device = 0; device < peaks.size(); ++device) {
        ASSERT_LE(lent[device], peaks[device]) << draw(schedule);
        most[device] = std::max(most[device], lent[device]);
      }
    }
    ++checked;
    reached += static_cast<int>(most == peaks);
  }
  EXPECT_GT(checked, 300);
  EXPECT_GT(reached, checked / 3);  // it is not only a bound
}

TEST(Memory, BytesOfADeviceAreSharedByItsStages) {
  const Schedule schedule = make_interleaved({.stages = 2, .micro_batches = 2, .virtual_stages = 3});
  const auto stages = share_bytes(schedule, std::vector<StageBytes>{{11, 9, 1}, {6, 0, 3}});
  ASSERT_EQ(stages.size(), 6U);
  EXPECT_EQ(stages[0].fixed, 5);  // 3 and what is left
  EXPECT_EQ(stages[2].fixed, 3);
  EXPECT_EQ(stages[4].activation, 3);
  EXPECT_EQ(stages[0].stash + stages[2].stash + stages[4].stash, 1);
  EXPECT_EQ(stages[1].fixed, 2);
  EXPECT_EQ(stages[3].stash, 1);
}

TEST(Memory, AllStagesOfADeviceCount) {
  const Schedule schedule = make_zb_v({.stages = 2, .micro_batches = 4});
  const std::vector<StageBytes> stages{{1, 0, 0}, {10, 0, 0}, {100, 0, 0}, {1000, 0, 0}};
  EXPECT_THAT(peak_bytes(schedule, stages), ElementsAre(1001, 110));
}

TEST(Memory, AnEvaluationKeepsOneActivation) {
  const Schedule schedule = make_forward_only(std::vector{0}, 9);
  EXPECT_THAT(peak_bytes(schedule, std::vector<StageBytes>{{7, 10, 10}}), ElementsAre(17));
}

TEST(Memory, ABudgetNamesTheDevice) {
  const Schedule schedule = make_gpipe({.stages = 2, .micro_batches = 4});
  const std::vector<StageBytes> stages{{0, 1024, 0}, {0, 2048, 0}};
  EXPECT_NO_THROW(require_bytes(schedule, stages, std::vector<std::int64_t>{4096, 8192}));
  EXPECT_THAT(
      [&] {
        require_bytes(schedule, stages, std::vector<std::int64_t>{1 << 20, 8191});
      },
      ThrowsMessage<ConfigError>(HasSubstr("schedule 'gpipe' needs 8.0 KiB on device 1, more than the")));
}

}  // namespace
}  // namespace sluice::pipeline
