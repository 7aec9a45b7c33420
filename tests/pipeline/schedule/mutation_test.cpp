// validate() against the oracle: over every single mistake in small schedules, over every order of very small ones, and
// over schedules drawn at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/mutants.h"
#include "pipeline/schedule/oracle.h"
#include "pipeline/schedule/random_schedule.h"
#include "pipeline/schedule/shapes.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

using test::is_valid;
using test::Mutant;
using test::Mutator;
using test::Oracle;

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
//   swap           two actions of a device that need nothing of each other, directly or by way of other devices:
//                  every action still runs once after what it needs, so the sums of gradients have the same terms
//   part a pair    one after the other is stricter than together
//   pair with next a forward and a backward that need nothing of each other
//   drop           the only backward of a pipeline with one stage and one micro-batch: what is left is an evaluation
// The oracle confirms each survivor by running it, and each rejected mutant by getting stuck or ending wrong.
bool may_survive(const Mutant& mutant) {
  if (mutant.kind == "swap" || mutant.kind == "part a pair" || mutant.kind == "pair with next") return true;
  return mutant.kind == "drop" && mutant.schedule.devices == std::vector<std::vector<Action>>{{Action{}}};
}

// Any number of receive buffers that makes a difference; nothing: as many as are sent.
constexpr std::array<std::optional<int>, 5> kBuffers{std::nullopt, 0, 1, 2, 3};

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
  std::map<std::string, int> survivors;
  for (const auto& [kind, tally] : tallies) survivors[kind] = tally.survivors;
  const std::map<std::string, int> expected{
      {"drop", 5},         {"duplicate", 0}, {"move", 0},   {"pair with next", 107},
      {"part a pair", 21}, {"retarget", 0},  {"swap", 654}, {"swap devices", 0}};
  EXPECT_EQ(survivors, expected);
}

// Swaps and pairs are the mistakes that leave a schedule complete, so that what is left is to wait for each other.
TEST(Mutation, WithReceiveBuffersTheOracleAgreesToo) {
  std::map<bool, int> verdicts;
  for (const auto& schedule : small_schedules()) {
    for (const auto& mutant : Mutator(schedule).all()) {
      if (mutant.kind != "swap" && mutant.kind != "part a pair" && mutant.kind != "pair with next") continue;
      for (const auto& buffers : kBuffers) {
        const Transport transport{.receive_buffers = buffers, .tied = {}};
        const bool completes = Oracle(mutant.schedule, transport).completes();
        ASSERT_EQ(is_valid(mutant.schedule, {.transport = transport}), completes) << buffers.value_or(-1) << "\n"
                                                                                  << draw(mutant.schedule);
        ++verdicts[completes];
      }
    }
  }
  EXPECT_GT(verdicts[true], 1000);
  EXPECT_GT(verdicts[false], 1000);
}

TEST(Mutation, WithTiedStagesTheOracleAgreesToo) {
  std::map<bool, int> verdicts;
  for (const std::string name : {"1f1b", "zb-h1", "zb-v", "looped-bfs"}) {
    const Schedule schedule = with_reductions(make_schedule(name, {.stages = 2, .micro_batches = 2}));
    std::vector<std::vector<StageId>> tied{{StageId{0}, static_cast<StageId>(schedule.stages - 1)}};
    if (schedule.stages > 2) tied.push_back({StageId{1}, StageId{2}});
    for (const auto& mutant : Mutator(schedule).all()) {
      const Transport transport{.receive_buffers = {}, .tied = tied};
      const bool completes = Oracle(mutant.schedule, transport).completes();
      ASSERT_EQ(is_valid(mutant.schedule, {.transport = transport}), completes) << draw(mutant.schedule);
      ++verdicts[completes];
    }
  }
  EXPECT_GT(verdicts[true], 10);
  EXPECT_GT(verdicts[false], 1000);
}

// Goes through every order of the lists of all devices.
void expect_agreement_on_every_schedule(Schedule schedule, int least_valid) {
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
  expect_agreement_on_every_schedule(make_gpipe({.stages = 2, .micro_batches = 2}), 3);
  expect_agreement_on_every_schedule(make_zb_h1({.stages = 1, .micro_batches = 2}), 3);
  expect_agreement_on_every_schedule(make_zb_h1({.stages = 3, .micro_batches = 1}), 1);
  expect_agreement_on_every_schedule(make_looped_bfs({.stages = 1, .micro_batches = 2}), 3);
  expect_agreement_on_every_schedule(make_zb_v({.stages = 1, .micro_batches = 1}), 3);
  expect_agreement_on_every_schedule(make_looped_bfs({.stages = 2, .micro_batches = 1}), 1);
}

// Two actions of a device swap positions.
void swap_two(test::Draw& draw_of, Schedule& schedule) {
  auto& actions =
      schedule.devices[static_cast<std::size_t>(draw_of.between(0, static_cast<int>(schedule.devices.size()) - 1))];
  const auto any = [&] { return static_cast<std::size_t>(draw_of.between(0, static_cast<int>(actions.size()) - 1)); };
  std::swap(actions[any()], actions[any()]);
}

// Each device's reductions at its end, in any order.
void shuffle_reductions(test::Draw& draw_of, Schedule& schedule) {
  for (auto& actions : schedule.devices) {
    const auto is_reduction = [](const Action& action) { return action.op == Op::kReduceGradient; };
    const auto last = std::ranges::stable_partition(actions, [&](const Action& a) { return !is_reduction(a); });
    std::ranges::shuffle(last, std::mt19937(static_cast<unsigned>(draw_of.between(0, 1 << 20))));
  }
}

// Most stages in one of two groups, the others in none.
std::vector<std::vector<StageId>> draw_groups(test::Draw& draw_of, int stages) {
  std::vector<std::vector<StageId>> groups(2);
  for (int stage = 0; stage < stages; ++stage) {
    const auto group = static_cast<std::size_t>(draw_of.between(0, 4)) / 2;
    if (group < groups.size()) groups[group].push_back(StageId{stage});
  }
  std::erase_if(groups, [](const auto& group) { return group.empty(); });
  return groups;
}

TEST(Mutation, RandomSchedulesAgreeWithTheOracle) {
  test::Draw draw_of(5);
  std::map<std::string, std::map<bool, int>> verdicts;
  int stopped_by_ties = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    Schedule schedule = test::random_schedule(draw_of, {.stages = 5, .micro_batches = 4, .devices = 3});
    Transport transport;
    const bool is_tied = trial % 2 == 1;
    if (is_tied) {
      schedule = with_reductions(std::move(schedule));
      shuffle_reductions(draw_of, schedule);
      transport.tied = draw_groups(draw_of, schedule.stages);
    }
    if (trial % 3 == 0) swap_two(draw_of, schedule);
    for (const auto& buffers : kBuffers) {
      transport.receive_buffers = buffers;
      const bool completes = Oracle(schedule, transport).completes();
      ASSERT_EQ(is_valid(schedule, {.transport = transport}), completes)
          << buffers.value_or(-1) << " " << transport.tied.size() << "\n"
          << draw(schedule);
      const std::string kind = buffers ? std::to_string(*buffers) : "any";
      if (is_tied && !buffers && !completes && is_valid(schedule)) ++stopped_by_ties;
      ++verdicts[kind + (is_tied ? " buffers, tied" : " buffers")][completes];
    }
  }
  std::cout << "  stopped by ties alone: " << stopped_by_ties << "\n";
  for (auto& [kind, of_kind] : verdicts) {
    std::cout << "  " << kind << ": " << of_kind[true] << " run, " << of_kind[false] << " rejected\n";
    EXPECT_GT(of_kind[true], 100) << kind;
    EXPECT_GT(of_kind[false], 500) << kind;
  }
  // Each buffer less, and the ties, must be the reason for some rejections.
  EXPECT_GT(verdicts["2 buffers"][true], verdicts["1 buffers"][true]);
  EXPECT_GT(verdicts["1 buffers"][true], verdicts["0 buffers"][true]);
  EXPECT_GT(stopped_by_ties, 15);
}

}  // namespace
}  // namespace sluice::pipeline
