// simulate() against an independent computation on random schedules and costs, and its parts one by one.
#include "pipeline/schedule/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/random_schedule.h"
#include "pipeline/schedule/shapes.h"

namespace sluice::pipeline {
namespace {

using test::even_costs;

// Longest paths by relaxation: every end time begins at 0 and is raised until no rule asks for more. Slow, and without
// any order of evaluation that could be wrong.
class Relaxation {
 public:
  Relaxation(const Schedule& schedule, const Costs& costs) : schedule_(schedule), costs_(costs) {
    for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
      for (const auto& action : schedule.devices[device]) {
        owner_[index(action.stage)] = static_cast<int>(device);
        end_[key(action)] = 0;
        sent_[key(action)] = 0;
      }
    }
  }

  double makespan() {
    while (raise_all()) {
    }
    double latest = 0;
    for (const auto& [action, end] : end_) latest = std::max(latest, end);
    return latest;
  }

 private:
  using Key = std::tuple<Op, int, int>;
  static Key key(const Action& action) { return {action.op, index(action.stage), index(action.micro_batch)}; }

  bool raise_all() {
    bool raised = false;
    for (const auto& actions : schedule_.devices) {
      double free_at = 0;
      std::map<std::tuple<int, char>, double> queue_free_at;  // by target and payload
      for (std::size_t i = 0; i < actions.size();) {
        const bool is_pair = actions[i].overlaps_next;
        double start = std::max(free_at, input(actions[i]));
        double length = cost(actions[i]);
        if (is_pair) {
          const double other = cost(actions[i + 1]);
          start = std::max(start, input(actions[i + 1]));
          length = std::max(length, other) + (1 - costs_.overlap) * std::min(length, other);
        }
        free_at = start + length;
        for (const std::size_t end = i + (is_pair ? 2 : 1); i < end; ++i) {
          raised = raise(end_, actions[i], free_at) || raised;
          raised = raise(sent_, actions[i], sent(actions[i], free_at, queue_free_at)) || raised;
        }
      }
    }
    return raised;
  }

  static bool raise(std::map<Key, double>& times, const Action& action, double time) {
    double& known = times[key(action)];
    const bool raises = time > known + 1e-12;
    known = std::max(known, time);
    return raises;
  }

  // When the last byte of a result has left, behind those of its queue.
  [[nodiscard]] double sent(const Action& action, double made,
                            std::map<std::tuple<int, char>, double>& queue_free_at) const {
    const int stage = index(action.stage);
    const bool is_forward = action.op == Op::kForward;
    const int to = is_forward ? stage + 1 : stage - 1;
    const bool sends = is_forward || action.op == Op::kBackward || action.op == Op::kInputGradient;
    if (!sends || !owner_.contains(to) || owner_.at(to) == owner_.at(stage) || costs_.sent_bytes.empty()) return made;
    double& free_at = queue_free_at[{owner_.at(to), is_forward ? 'a' : 'g'}];
    free_at = std::max(free_at, made) +
              costs_.sent_bytes[static_cast<std::size_t>(std::min(stage, to))] / link(stage, to).bytes_per_time;
    return free_at;
  }

  [[nodiscard]] const Link& link(int from, int to) const {
    return costs_.links.empty() ? costs_.link : costs_.links[static_cast<std::size_t>(std::min(from, to))];
  }

  [[nodiscard]] double cost(const Action& action) const {
    const StepCost& stage = costs_.stages[static_cast<std::size_t>(index(action.stage))];
    if (action.op == Op::kForward) return stage.forward;
    if (action.op == Op::kInputGradient) return stage.input;
    if (action.op == Op::kReduceGradient) return 0;
    return action.op == Op::kWeightGradient ? stage.weight : stage.input + stage.weight;
  }

  [[nodiscard]] double input(const Action& action) const {
    const int stage = index(action.stage);
    const int m = index(action.micro_batch);
    double ready = 0;
    const auto wait_for = [&](Op op, int from) {
      if (!end_.contains({op, from, m})) return;
      const bool is_here = owner_.at(from) == owner_.at(stage);
      ready = std::max(ready, is_here ? end_.at({op, from, m}) : sent_.at({op, from, m}) + link(from, stage).latency);
    };
    if (action.op == Op::kForward) wait_for(Op::kForward, stage - 1);
    if (action.op == Op::kWeightGradient) wait_for(Op::kInputGradient, stage);
    if (action.op == Op::kBackward || action.op == Op::kInputGradient) {
      wait_for(Op::kForward, stage);
      wait_for(Op::kBackward, stage + 1);
      wait_for(Op::kInputGradient, stage + 1);
    }
    return ready;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  std::map<int, int> owner_;
  std::map<Key, double> end_;
  std::map<Key, double> sent_;
};

Costs random_costs(test::Draw& draw_of, const Schedule& schedule, int trial) {
  Costs costs{.stages = {}, .sent_bytes = {}, .link = {.latency = draw_of.time(0, 2)}, .overlap = draw_of.time(0, 1)};
  for (int stage = 0; stage < schedule.stages; ++stage) costs.stages.push_back(draw_of.cost());
  if (trial % 2 == 0) {
    costs.link.bytes_per_time = draw_of.time(1, 5);
    for (int stage = 0; stage < schedule.stages; ++stage) costs.sent_bytes.push_back(draw_of.time(0, 10));
  }
  if (trial % 3 == 0) {
    for (int stage = 0; stage < schedule.stages; ++stage)
      costs.links.push_back({.latency = draw_of.time(0, 2), .bytes_per_time = draw_of.time(1, 5)});
  }
  return costs;
}

TEST(Simulate, RandomSchedulesAndCostsTakeTheLongestPath) {
  test::Draw draw_of(3);
  int checked = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Schedule schedule = test::random_schedule(draw_of, {.stages = 6, .micro_batches = 5, .devices = 4});
    if (!test::is_valid(schedule)) continue;
    if (trial % 4 == 0) schedule = with_reductions(std::move(schedule));
    const Costs costs = random_costs(draw_of, schedule, trial);
    const Simulation result = simulate(schedule, costs);
    ASSERT_NEAR(result.makespan, Relaxation(schedule, costs).makespan(), 1e-9 * result.makespan) << draw(schedule);
    ++checked;
  }
  EXPECT_GT(checked, 500);
}

Costs times(Costs costs, double factor) {
  for (StepCost& cost : costs.stages) {
    for (double* part : {&cost.forward, &cost.input, &cost.weight, &cost.first_forward, &cost.first_backward})
      *part *= factor;
    if (cost.backward) *cost.backward *= factor;
  }
  return costs;
}

void expect_same_spans(const Simulation& found, const Simulation& wanted, const std::string& which) {
  const double rounding = 1e-9 * wanted.makespan;
  ASSERT_NEAR(found.makespan, wanted.makespan, rounding) << which;
  for (std::size_t d = 0; d < wanted.spans.size(); ++d)
    for (std::size_t i = 0; i < wanted.spans[d].size(); ++i) {
      ASSERT_NEAR(found.spans[d][i].start, wanted.spans[d][i].start, rounding) << which;
      ASSERT_NEAR(found.spans[d][i].end, wanted.spans[d][i].end, rounding) << which;
    }
}

// All actions at half the speed: each takes twice as long, messages do not. And at the speed as it is.
TEST(Simulate, SpeedsThatDoNotChangeAreCosts) {
  test::Draw draw_of(5);
  int checked = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    Schedule schedule = test::random_schedule(draw_of, {.stages = 6, .micro_batches = 5, .devices = 4});
    if (!test::is_valid(schedule)) continue;
    if (trial % 4 == 0) schedule = with_reductions(std::move(schedule));
    const Costs costs = random_costs(draw_of, schedule, trial);
    const Simulator simulator(schedule);
    for (const double stretch : {1.0, 2.0}) {
      const auto stretching = [&](std::span<const int>, std::span<double> all) { std::ranges::fill(all, stretch); };
      expect_same_spans(simulator.run(costs, stretching), simulator.run(times(costs, stretch)), draw(schedule));
    }
    ++checked;
  }
  EXPECT_GT(checked, 250);
}

// Two devices that are half as fast while both work: F of 1 and 2 s, then device 1's second alone.
TEST(Simulate, SpeedsChangeWheneverAnActionBeginsOrEnds) {
  const Schedule schedule = parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1");
  const Costs costs{.stages = {{1, 0, 0}, {2, 0, 0}}};
  const Simulation found =
      Simulator(schedule).run(costs, [](std::span<const int> working, std::span<double> stretches) {
        std::ranges::fill(stretches, working[0] >= 0 && working[1] >= 0 ? 2.0 : 1.0);
      });
  EXPECT_DOUBLE_EQ(found.spans[0][0].end, 1);
  EXPECT_DOUBLE_EQ(found.spans[0][1].end, 3) << "beside the other one";
  EXPECT_DOUBLE_EQ(found.spans[1][0].end, 4) << "of two seconds one beside the other one, at half the speed";
  EXPECT_DOUBLE_EQ(found.makespan, 6);
}

TEST(Simulate, ReadsAsTheSpecification) {
  const Schedule schedule = parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1");
  Costs costs{.stages = {{1, 1, 1}, {2, 1, 2}}, .sent_bytes = {}, .link = {.latency = 0.5}};
  const Simulation result = simulate(schedule, costs);
  // device 0: F0 0-1, F1 1-2, B0 7-9, B1 12-14;  device 1: F0 1.5-3.5, B0 3.5-6.5, F1 6.5-8.5, B1 8.5-11.5
  EXPECT_DOUBLE_EQ(result.spans[0][2].start, 7);
  EXPECT_DOUBLE_EQ(result.spans[1][3].end, 11.5);
  EXPECT_DOUBLE_EQ(result.makespan, 14);
  EXPECT_DOUBLE_EQ(result.devices[0].busy, 6);
  EXPECT_DOUBLE_EQ(result.devices[0].idle, 8);
  EXPECT_DOUBLE_EQ(result.devices[1].start, 1.5);
  EXPECT_DOUBLE_EQ(result.devices[1].busy, 10);
  EXPECT_DOUBLE_EQ(result.bubble_fraction, 1 - 16.0 / 28);
  EXPECT_DOUBLE_EQ(result.barrier_bubble, 4);  // device 1 is the busiest: 14 - 10
  EXPECT_DOUBLE_EQ(result.window_bubble, 8);   // device 0: 14 - 0 - 6
}

TEST(Simulate, ASimulatorKeepsNothingFromOneCostToTheNext) {
  const Schedule schedule = parse_schedule("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1");
  const Simulator simulator(schedule);
  const Costs slow{.stages = {{3, 1, 1, {}, 1}, {2, 1, 2}}, .sent_bytes = {4, 0}, .link = {.bytes_per_time = 2}};
  const Costs fast{.stages = {{1, 1, 1}, {2, 1, 2}}, .sent_bytes = {}, .link = {.latency = 0.5}};
  const double first = simulator.run(slow).makespan;
  EXPECT_DOUBLE_EQ(simulator.run(fast).makespan, 14);
  EXPECT_DOUBLE_EQ(simulator.run(slow).makespan, first);
  EXPECT_DOUBLE_EQ(simulate(schedule, slow).makespan, first);
}

TEST(Simulate, MessagesOfAQueueShareItsBandwidth) {
  const Schedule schedule = parse_schedule("0F0 0F1 0F2\n1F0 1F1 1F2");
  Costs costs{.stages = {{1, 0, 0}, {1, 0, 0}}, .sent_bytes = {60, 0}, .link = {.latency = 0.5, .bytes_per_time = 20}};
  const Simulation result = simulate(schedule, costs);
  // Sent from 1 to 4, 4 to 7 and 7 to 10 (3 each), there half a unit later.
  EXPECT_DOUBLE_EQ(result.spans[1][0].start, 4.5);
  EXPECT_DOUBLE_EQ(result.spans[1][1].start, 7.5);
  EXPECT_DOUBLE_EQ(result.spans[1][2].start, 10.5);
  costs.link.bytes_per_time = 120;  // faster than they are made: no queue
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).spans[1][2].start, 3 + 0.5 + 0.5);
}

TEST(Simulate, AGradientIsAsLargeAsTheActivationOfItsEdge) {
  const Schedule schedule = parse_schedule("0F0 0B0\n1F0 1B0\n2F0 2B0");
  const std::vector<StepCost> stages(3, {1, 1, 0});
  const Simulation result =
      simulate(schedule, {.stages = stages, .sent_bytes = {10, 20, 999}, .link = {.latency = 0, .bytes_per_time = 10}});
  EXPECT_DOUBLE_EQ(result.spans[2][0].start, 1 + 1 + 1 + 2);
  EXPECT_DOUBLE_EQ(result.spans[1][1].start, 7 + 2);
  EXPECT_DOUBLE_EQ(result.makespan, 10 + 1 + 1);
}

TEST(Simulate, OverlapHidesAShareOfTheShorterPart) {
  const Schedule schedule = parse_schedule("0F0 (0F1;0B0) 0B1");
  const std::vector<StepCost> stages{{1, 1, 2}};
  for (const auto& [overlap, makespan] : std::vector<std::pair<double, double>>{{0, 8}, {0.5, 7.5}, {1, 7}})
    EXPECT_DOUBLE_EQ(simulate(schedule, {.stages = stages, .sent_bytes = {}, .link = {}, .overlap = overlap}).makespan,
                     makespan);
}

TEST(Simulate, StagesOfOneDeviceNeedNoHop) {
  const Schedule schedule = make_zb_v({.stages = 1, .micro_batches = 3});
  EXPECT_DOUBLE_EQ(simulate(schedule, even_costs(schedule, {1, 1, 1}, 5)).makespan, 9);
}

TEST(Simulate, AScheduleWithoutWorkHasNoBubble) {
  const Schedule schedule = make_1f1b({.stages = 2, .micro_batches = 2});
  const Simulation result = simulate(schedule, even_costs(schedule, {0, 0, 0}));
  EXPECT_EQ(result.makespan, 0);
  EXPECT_EQ(result.bubble_fraction, 0);
}

// 0.1 cannot be written in binary: sums of it that should be equal are not quite.
TEST(Simulate, RoundingIsNoBubble) {
  const Schedule schedule = make_zb_h2({.stages = 8, .micro_batches = 32});
  const Simulation result = simulate(schedule, even_costs(schedule, {0.1, 0.1, 0.1}));
  EXPECT_EQ(result.window_bubble, 0);
  EXPECT_NEAR(result.barrier_bubble, 0.7, 1e-12);
  const Schedule alone = make_1f1b({.stages = 1, .micro_batches = 512});
  const Simulation all_busy = simulate(alone, even_costs(alone, {0.1, 0.7, 0.3}));
  EXPECT_EQ(all_busy.barrier_bubble, 0);
  EXPECT_EQ(all_busy.bubble_fraction, 0);
  EXPECT_EQ(all_busy.devices[0].idle, 0);
}

TEST(Simulate, NumbersHaveTenDigits) {
  EXPECT_EQ(number_text(28.5), "28.5");
  EXPECT_EQ(number_text(6321600), "6321600");
  EXPECT_EQ(number_text(0.1 + 0.2), "0.3");
  EXPECT_EQ(number_text(1e12), "1e+12");
  EXPECT_EQ(number_text(0), "0");
}

TEST(Simulate, CostsOfADeviceAreSharedByItsStages) {
  const Schedule schedule = parse_schedule("0F0 0B0 2F0 2B0\n1F0 1B0");
  const auto stages = share_costs(schedule, std::vector<StepCost>{{4, 2, 6}, {1, 2, 3}});
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_EQ(stages[0].forward, 2);
  EXPECT_EQ(stages[2].weight, 3);
  EXPECT_EQ(stages[1].input, 2);
}

}  // namespace
}  // namespace sluice::pipeline
