// validate() against hand-written mistakes, and against a brute-force simulation of the devices over every single
// mutation of small schedules. The simulation is the definition of "still valid": devices walk their lists, results
// travel in first-in first-out queues per (source, target, payload), and at the end each wanted action ran once.
#include "pipeline/schedule/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"

namespace sluice::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kInterleaved =
    "schedule=interleaved stages=4 micro_batches=4\n"
    "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
    "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n";

std::string verdict(const Schedule& schedule) {
  try {
    validate(schedule);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "valid";
}

std::string verdict(std::string_view text) { return verdict(parse_schedule(text)); }

// Written without the helpers of the schedule library, so that a mistake in them shows.
class Simulation {
 public:
  explicit Simulation(const Schedule& schedule) : schedule_(schedule) {}

  bool completes() {
    if (!find_owners()) return false;
    std::vector<std::size_t> next(schedule_.devices.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t device = 0; device < next.size(); ++device) {
        const auto& actions = schedule_.devices[device];
        if (next[device] == actions.size() || !try_run(actions[next[device]])) continue;
        ++next[device];
        moved = true;
      }
    }
    for (std::size_t device = 0; device < next.size(); ++device) {
      if (next[device] != schedule_.devices[device].size()) return false;
    }
    return ran_everything_once();
  }

 private:
  using Key = std::tuple<int, int, char>;  // source device, target device, 'a' or 'g'
  using Message = std::pair<int, int>;     // receiving stage, micro-batch

  bool find_owners() {
    for (std::size_t device = 0; device < schedule_.devices.size(); ++device) {
      if (schedule_.devices[device].empty()) return false;
      for (const auto& action : schedule_.devices[device]) {
        const auto [entry, fresh] = owners_.emplace(index(action.stage), static_cast<int>(device));
        if (!fresh && entry->second != static_cast<int>(device)) return false;
      }
    }
    return true;
  }

  bool try_run(const Action& action) {
    const int stage = index(action.stage);
    const int mb = index(action.micro_batch);
    const bool forward = action.op == Op::kForward;
    if (!forward && ran_.count({Op::kForward, action.stage, action.micro_batch}) == 0) return false;
    const int from = forward ? stage - 1 : stage + 1;
    const int to = forward ? stage + 1 : stage - 1;
    if (from >= 0 && from < schedule_.stages && !take(from, stage, mb, action.op)) return false;
    ++ran_[action];
    const auto target = owners_.find(to);
    if (target != owners_.end() && target->second != owners_.at(stage)) {
      queues_[{owners_.at(stage), target->second, forward ? 'a' : 'g'}].emplace_back(to, mb);
    }
    return true;
  }

  bool take(int from, int stage, int mb, Op op) {
    const auto source = owners_.find(from);
    if (source == owners_.end()) return false;
    if (source->second == owners_.at(stage)) {
      return ran_.count({op, static_cast<StageId>(from), static_cast<MicroBatchId>(mb)}) > 0;
    }
    auto& queue = queues_[{source->second, owners_.at(stage), op == Op::kForward ? 'a' : 'g'}];
    if (queue.empty() || queue.front() != Message{stage, mb}) return false;
    queue.pop_front();
    return true;
  }

  [[nodiscard]] bool ran_everything_once() const {
    std::set<Action> wanted;
    const bool trains = std::ranges::any_of(ran_, [](const auto& entry) { return entry.first.op == Op::kBackward; });
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      for (int mb = 0; mb < schedule_.micro_batches; ++mb) {
        wanted.insert({Op::kForward, static_cast<StageId>(stage), static_cast<MicroBatchId>(mb)});
        if (trains) wanted.insert({Op::kBackward, static_cast<StageId>(stage), static_cast<MicroBatchId>(mb)});
      }
    }
    for (const auto& [action, times] : ran_) {
      if (times != 1 || wanted.erase(action) == 0) return false;
    }
    return wanted.empty();
  }

  const Schedule& schedule_;
  std::map<int, int> owners_;
  std::map<Action, int> ran_;
  std::map<Key, std::deque<Message>> queues_;
};

bool is_valid(const Schedule& schedule) { return verdict(schedule) == "valid"; }

std::vector<Schedule> drops_and_duplicates(const Schedule& schedule) {
  std::vector<Schedule> mutants;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (std::size_t i = 0; i < schedule.devices[device].size(); ++i) {
      Schedule dropped = schedule;
      auto& shorter = dropped.devices[device];
      shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
      mutants.push_back(std::move(dropped));
      for (std::size_t other = 0; other < schedule.devices.size(); ++other) {
        mutants.emplace_back(schedule).devices[other].push_back(schedule.devices[device][i]);
      }
      for (std::size_t to = 0; to <= schedule.devices[device].size(); ++to) {
        Schedule doubled = schedule;
        auto& longer = doubled.devices[device];
        longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(to), schedule.devices[device][i]);
        mutants.push_back(std::move(doubled));
      }
    }
  }
  return mutants;
}

// Each action given to every other device instead, at every position.
std::vector<Schedule> moves(const Schedule& schedule) {
  std::vector<Schedule> mutants;
  for (std::size_t from = 0; from < schedule.devices.size(); ++from) {
    for (std::size_t i = 0; i < schedule.devices[from].size(); ++i) {
      for (std::size_t to = 0; to < schedule.devices.size(); ++to) {
        for (std::size_t at = 0; to != from && at <= schedule.devices[to].size(); ++at) {
          auto& devices = mutants.emplace_back(schedule).devices;
          devices[from].erase(devices[from].begin() + static_cast<std::ptrdiff_t>(i));
          devices[to].insert(devices[to].begin() + static_cast<std::ptrdiff_t>(at), schedule.devices[from][i]);
        }
      }
    }
  }
  return mutants;
}

std::vector<Schedule> swaps(const Schedule& schedule) {
  std::vector<Schedule> mutants;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const std::size_t length = schedule.devices[device].size();
    for (std::size_t i = 0; i < length; ++i) {
      for (std::size_t j = i + 1; j < length; ++j) {
        auto& actions = mutants.emplace_back(schedule).devices[device];
        std::swap(actions[i], actions[j]);
      }
    }
  }
  return mutants;
}

std::vector<Schedule> retargets(const Schedule& schedule) {
  std::vector<Schedule> mutants;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (std::size_t i = 0; i < schedule.devices[device].size(); ++i) {
      const Action original = schedule.devices[device][i];
      const auto add = [&](Action changed) {
        if (changed != original) mutants.emplace_back(schedule).devices[device][i] = changed;
      };
      for (int stage = -1; stage <= schedule.stages; ++stage) {
        add({original.op, static_cast<StageId>(stage), original.micro_batch});
      }
      for (int mb = -1; mb <= schedule.micro_batches; ++mb) {
        add({original.op, original.stage, static_cast<MicroBatchId>(mb)});
      }
      add({original.op == Op::kForward ? Op::kBackward : Op::kForward, original.stage, original.micro_batch});
    }
  }
  return mutants;
}

std::vector<Schedule> small_schedules() {
  std::vector<Schedule> schedules{parse_schedule(kInterleaved)};
  for (int p = 1; p <= 4; ++p) {
    for (int m = 1; m <= 4; ++m) {
      for (const auto make : {make_gpipe, make_1f1b, make_forward_only}) {
        schedules.push_back(make({.stages = p, .micro_batches = m}));
      }
    }
  }
  return schedules;
}

TEST(Mutation, DropDuplicateRetargetMoveIsRejectedUnlessTheSimulationCompletes) {
  for (const auto& schedule : small_schedules()) {
    ASSERT_EQ(verdict(schedule), "valid") << draw(schedule);
    auto mutants = drops_and_duplicates(schedule);
    std::ranges::move(retargets(schedule), std::back_inserter(mutants));
    std::ranges::move(moves(schedule), std::back_inserter(mutants));
    for (const auto& mutant : mutants) {
      EXPECT_EQ(is_valid(mutant), Simulation(mutant).completes()) << draw(mutant) << verdict(mutant);
      // One action more, less or other is never sound, except that one stage and one micro-batch without its backward
      // is what evaluation runs.
      const bool became_evaluation = schedule.stages == 1 && schedule.micro_batches == 1;
      EXPECT_TRUE(became_evaluation || !is_valid(mutant)) << draw(mutant);
    }
  }
}

TEST(Mutation, SwapIsRejectedUnlessTheSimulationCompletes) {
  int still_valid = 0;
  int rejected = 0;
  for (const auto& schedule : small_schedules()) {
    for (const auto& mutant : swaps(schedule)) {
      const bool completes = Simulation(mutant).completes();
      ASSERT_EQ(is_valid(mutant), completes) << draw(mutant) << verdict(mutant);
      ++(completes ? still_valid : rejected);
    }
  }
  EXPECT_GT(still_valid, 0);
  EXPECT_GT(rejected, still_valid);
}

TEST(Mutation, EveryOrderOfASmallPipelineAgreesWithTheSimulation) {
  Schedule schedule = make_gpipe({.stages = 2, .micro_batches = 2});
  for (auto& actions : schedule.devices) std::ranges::sort(actions);
  int valid = 0;
  do {
    do {
      const bool completes = Simulation(schedule).completes();
      ASSERT_EQ(is_valid(schedule), completes) << draw(schedule) << verdict(schedule);
      valid += static_cast<int>(completes);
    } while (std::ranges::next_permutation(schedule.devices[1]).found);
  } while (std::ranges::next_permutation(schedule.devices[0]).found);
  EXPECT_GT(valid, 2);
}

TEST(Validate, NamesTheRuleTheActionAndWhatWasExpected) {
  EXPECT_THAT(
      verdict("0F0 0B0 0F0"),
      HasSubstr("breaks the rule 'complete': 0F0 is there twice (device 0, position 0 and device 0, position 2)"));
  EXPECT_THAT(verdict("0F0 0F1 0B0"), HasSubstr("'complete': 0B1 is missing; expected 4 actions, found 3"));
  EXPECT_THAT(verdict("0F0 0F2 0B0 0B2"), HasSubstr("'complete': 0F1 is missing"));
  EXPECT_THAT(verdict("0F0 1F0\n1B0 0B0"), HasSubstr("'owner': 1B0 is on device 1, expected device 0"));
  EXPECT_THAT(verdict("0B0 0F0"), HasSubstr("'order': 0B0 (device 0, position 0) comes before 0F0"));
  EXPECT_THAT(verdict("0F0 0B0\n-"), HasSubstr("'shape': device 1 has no actions"));
  EXPECT_THAT(verdict("schedule=x stages=1 micro_batches=1\n0F0 0F1"),
              HasSubstr("'range': 0F1 (device 0, position 1) names micro-batch 1, expected 0 to 0"));
  EXPECT_THAT(verdict("schedule=x stages=0 micro_batches=1\n0F0"), HasSubstr("'shape': stages=0"));
  EXPECT_THAT(verdict("schedule=x stages=1 micro_batches=0\n0F0"), HasSubstr("'shape': micro_batches=0"));
  EXPECT_THAT(verdict(Schedule{"two words", 1, 1, {{Action{}}}}), HasSubstr("'shape': its name"));
  EXPECT_THAT(verdict(Schedule{"x", 1, 1, {}}), HasSubstr("'shape': it has no devices"));
}

TEST(Validate, PrintsTheCycle) {
  EXPECT_THAT(verdict("0F0 0B0 0F1 0B1\n"
                      "1F0 1F1 1B0 1B1\n"),
              HasSubstr("'progress': the devices wait for each other for ever: "
                        "0B0 waits for 1B0, which is after 1F1 on device 1, "
                        "1F1 waits for 0F1, which is after 0B0 on device 0;"));
  EXPECT_THAT(verdict("1F0 0F0"), HasSubstr("1F0 waits for 0F0, which is after 1F0 on device 0"));
}

TEST(Validate, SendsAndReceivesHaveOneOrder) {
  EXPECT_THAT(verdict("0F0 0F1\n1F1 1F0"),
              AllOf(HasSubstr("'queue': device 1 next takes the activation for 1F1 from device 0"),
                    HasSubstr("which sends that for 1F0 first")));
  EXPECT_THAT(verdict("0F0 0F1 0B1 0B0\n1F0 1F1 1B0 1B1"), HasSubstr("takes the gradient for 0B1 from device 1"));
}

// A set of (stage, operation) per micro-batch cannot see a second copy; neither can a sum of counts when one action
// replaces another.
TEST(Validate, CountsActionsInsteadOfCollectingThem) {
  EXPECT_THAT(verdict("0F0 0B0 0F1 0B1 0B1"), HasSubstr("0B1 is there twice"));
  EXPECT_THAT(verdict("0F0 0B0 0F0 0B0"), HasSubstr("0F0 is there twice"));
}

TEST(Validate, AHugeClaimCostsNothing) {
  EXPECT_THAT(verdict("schedule=x stages=1000000 micro_batches=1000000\n0F0"),
              HasSubstr("0F1 is missing; expected 1000000000000 actions, found 1"));
}

TEST(Validate, AcceptsSeveralStagesPerDevice) { EXPECT_EQ(verdict(kInterleaved), "valid"); }

}  // namespace
}  // namespace sluice::pipeline
