// validate() against the oracle: over every single mistake in small schedules, over every order of very small ones, and
// over schedules drawn at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/mutants.h"
#include "pipeline/schedule/oracle.h"
#include "pipeline/schedule/random_schedule.h"
#include "pipeline/schedule/shapes.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

using test::Mutant;
using test::Mutator;
using test::Oracle;

bool is_valid(const Schedule& schedule) {
  try {
    validate(schedule);
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

std::vector<Schedule> small_schedules() {
  std::vector<Schedule> schedules;
  test::for_each_shape(3, 4, 2, [&](const test::NamedShape& shape) {
    if (shape.shape.stages * shape.virtual_stages() <= 4) schedules.push_back(shape.make());
  });
  for (const auto& name : {"1f1b", "zb-h1", "dualpipe-v"})
    schedules.push_back(with_reductions(make_schedule(name, {.stages = 2, .micro_batches = 4})));
  schedules.push_back(make_forward_only(std::vector{0, 1, 2}, 3));
  return schedules;
}

struct Tally {
  int mutants = 0;
  int survivors = 0;
  std::map<std::string, int> survivors_by_ops;
};

void print(const std::map<std::string, Tally>& tallies, std::size_t schedules) {
  std::cout << "mutants of " << schedules << " schedules, each valid before:\n";
  for (const auto& [kind, tally] : tallies) {
    std::cout << "  " << std::left << std::setw(16) << kind << std::right << std::setw(8) << tally.mutants
              << " mutants  " << std::setw(6) << tally.survivors << " survivors";
    for (const auto& [ops, count] : tally.survivors_by_ops) std::cout << "  " << ops << " " << count;
    std::cout << "\n";
    ::testing::Test::RecordProperty(kind + " mutants", tally.mutants);
    ::testing::Test::RecordProperty(kind + " survivors", tally.survivors);
  }
}

// Who may survive, and why it is no mistake:
//   swap           two actions that need nothing of each other, directly or by way of other devices: every action still
//                  runs once after what it needs, so the sums of gradients have the same terms
//   part a pair    one after the other is stricter than together
//   pair with next a forward and a backward that need nothing of each other
//   drop           the only backward of a pipeline with one stage and one micro-batch: what is left is an evaluation
// The oracle confirms each survivor by running it, and each rejected mutant by getting stuck or ending wrong.
bool may_survive(const Mutant& mutant) {
  if (mutant.kind == "swap" || mutant.kind == "part a pair" || mutant.kind == "pair with next") return true;
  return mutant.kind == "drop" && mutant.schedule.devices == std::vector<std::vector<Action>>{{Action{}}};
}

TEST(Mutation, EverySingleMistakeIsRejectedOrTheOracleRunsIt) {
  std::map<std::string, Tally> tallies;
  const auto schedules = small_schedules();
  for (const auto& schedule : schedules) {
    ASSERT_TRUE(is_valid(schedule)) << draw(schedule);
    for (const auto& mutant : Mutator(schedule).all()) {
      const bool survives = is_valid(mutant.schedule);
      ASSERT_EQ(survives, Oracle(mutant.schedule).completes()) << mutant.kind << "\n" << draw(mutant.schedule);
      ASSERT_TRUE(!survives || may_survive(mutant)) << mutant.kind << "\n" << draw(mutant.schedule);
      Tally& tally = tallies[mutant.kind];
      ++tally.mutants;
      tally.survivors += survives ? 1 : 0;
      if (survives && !mutant.what.empty()) ++tally.survivors_by_ops[mutant.what];
    }
  }
  print(tallies, schedules.size());
  EXPECT_EQ(tallies.at("duplicate").survivors + tallies.at("retarget").survivors + tallies.at("move").survivors, 0);
  EXPECT_GT(tallies.at("swap").survivors, 0);
  EXPECT_LT(2 * tallies.at("swap").survivors, tallies.at("swap").mutants);
}

// A swap that survives changes no order that a result depends on: what each action reads and what it is added to are
// the same, so F's and I's, B's and W's of one stage and one micro-batch keep their order.
TEST(Mutation, SurvivingSwapsKeepTheOrderOfEveryMicroBatchOnItsStage) {
  for (const auto& schedule : small_schedules()) {
    for (const auto& mutant : Mutator(schedule).all()) {
      if (mutant.kind != "swap" || !is_valid(mutant.schedule)) continue;
      for (const auto& actions : mutant.schedule.devices) {
        std::map<std::pair<StageId, MicroBatchId>, std::string> seen;
        for (const auto& action : actions) {
          if (action.op != Op::kReduceGradient) seen[{action.stage, action.micro_batch}] += letter(action.op);
        }
        for (const auto& [key, order] : seen) EXPECT_TRUE(order == "F" || order == "FB" || order == "FIW") << order;
      }
    }
  }
}

// Goes through every order of the lists of all devices.
void expect_agreement_on_every_order(Schedule schedule, int least_valid) {
  for (auto& actions : schedule.devices) std::ranges::sort(actions);
  int valid = 0;
  const auto next_order = [&] {
    return std::ranges::any_of(schedule.devices,
                               [](auto& actions) { return std::ranges::next_permutation(actions).found; });
  };
  do {
    const bool completes = Oracle(schedule).completes();
    ASSERT_EQ(is_valid(schedule), completes) << draw(schedule);
    valid += completes ? 1 : 0;
  } while (next_order());
  EXPECT_GE(valid, least_valid);
}

TEST(Mutation, EveryOrderOfVerySmallSchedulesAgreesWithTheOracle) {
  expect_agreement_on_every_order(make_gpipe({.stages = 2, .micro_batches = 2}), 3);
  expect_agreement_on_every_order(make_zb_h1({.stages = 1, .micro_batches = 2}), 3);
  expect_agreement_on_every_order(make_zb_h1({.stages = 3, .micro_batches = 1}), 1);
  expect_agreement_on_every_order(make_looped_bfs({.stages = 1, .micro_batches = 2}), 3);
  expect_agreement_on_every_order(make_zb_v({.stages = 1, .micro_batches = 1}), 3);
  expect_agreement_on_every_order(make_looped_bfs({.stages = 2, .micro_batches = 1}), 1);
}

TEST(Mutation, RandomSchedulesAgreeWithTheOracle) {
  test::Draw draw_of(5);
  int valid = 0;
  int rejected = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    Schedule schedule = test::random_schedule(draw_of, {.stages = 5, .micro_batches = 4, .devices = 3});
    if (trial % 3 == 0) {  // and with two actions of a device swapped
      auto& actions =
          schedule.devices[static_cast<std::size_t>(draw_of.between(0, static_cast<int>(schedule.devices.size()) - 1))];
      const auto any = [&] {
        return static_cast<std::size_t>(draw_of.between(0, static_cast<int>(actions.size()) - 1));
      };
      std::swap(actions[any()], actions[any()]);
    }
    const bool completes = Oracle(schedule).completes();
    ASSERT_EQ(is_valid(schedule), completes) << draw(schedule);
    ++(completes ? valid : rejected);
  }
  EXPECT_GT(valid, 500);
  EXPECT_GT(rejected, 500);
}

}  // namespace
}  // namespace sluice::pipeline
