// simulate_contention() against times computed by hand, and bounds that hold for any costs.
#include "tune/contention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/rng.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;

Schedule schedule_for(const std::string& name, int devices, int chunks) {
  return pipeline::with_reductions(pipeline::make_schedule(name, {.stages = devices, .micro_batches = chunks}));
}

// One stage, two replicas: they always work at the same time.
TEST(Contention, ReplicasSlowEachOtherAllTheTime) {
  const Schedule schedule = schedule_for("gpipe", 1, 4);
  const pipeline::Costs costs{.stages = {{.forward = 1, .input = 1, .weight = 1}}};
  EXPECT_DOUBLE_EQ(simulate_contention(schedule, costs, {{1.5}, 2, 2}).makespan, 12 * 1.5);
  EXPECT_DOUBLE_EQ(simulate_contention(schedule, costs, {{1.5}, 2, 1}).makespan, 12) << "alone";
  EXPECT_DOUBLE_EQ(simulate_contention(schedule, costs, {{1.5}, 3, 2}).makespan, 12 * 1.25) << "one of two others";
  EXPECT_DOUBLE_EQ(simulate_contention(schedule, costs, {{}, 2, 2}).makespan, 12);
  EXPECT_DOUBLE_EQ(simulate_contention(schedule, costs, {{1.5}, 1, 2}).makespan, 12) << "it was not measured";
}

// GPipe on two devices: F0 alone, F1 beside F, ..., as on paper: of m micro-batches all but one overlap each way.
TEST(Contention, OnlyWhatOverlapsIsSlower) {
  for (const int m : {1, 2, 8}) {
    const Schedule schedule = schedule_for("gpipe", 2, m);
    const pipeline::Costs costs{.stages = {{1, 1, 1}, {1, 1, 1}}};
    const double seconds = simulate_contention(schedule, costs, {{1.2, 1.2}, 2, 1}).makespan;
    EXPECT_NEAR(seconds, 3 * (2 + (m - 1) * 1.2), 3 * 0.2 * 0.2 * m) << m;
    EXPECT_GE(seconds, 6);
  }
}

// F of 1 and 2 s, two of them: the second one of device 0 runs beside the first one of device 1, whose last runs alone.
// With a half more for each, device 0 takes x = 1.5 for its second, and device 1 y = 2 (1 + x / (2 y)) for its first.
TEST(Contention, WhatIsSlowerOverlapsMore) {
  const pipeline::Costs costs{
      .stages = {{.forward = 1, .input = 0, .weight = 0}, {.forward = 2, .input = 0, .weight = 0}}};
  const double first = 1 + std::sqrt(1 + 1.5);
  EXPECT_NEAR(simulate_contention(schedule_for("gpipe", 2, 2), costs, {{1.5, 1.5}, 2, 1}).makespan, 1 + first + 2,
              0.01);
}

// Of one to four devices and one to three replicas, with two micro-batches a device.
struct RandomCase {
  Schedule schedule;
  pipeline::Costs costs;
  Contention contention;
};
RandomCase random_case(RngStream& rng, const std::string& name) {
  const int p = 1 + static_cast<int>(rng.below(4)), replicas = 1 + static_cast<int>(rng.below(3));
  RandomCase drawn{.schedule = schedule_for(name, p, 2 * p),
                   .costs = {},
                   .contention = {.contenders = std::max(2, p * replicas), .replicas = replicas}};
  for (int s = 0; s < drawn.schedule.stages; ++s) {
    drawn.costs.stages.push_back({rng.uniform(0.1, 1), rng.uniform(0.1, 1), rng.uniform(0.1, 1)});
    drawn.contention.slowdowns.push_back(rng.uniform(1, 1.6));
  }
  return drawn;
}

TEST(Contention, IsBetweenNoneAndAllTheTime) {
  RngStream rng(3);
  for (const std::string& name : pipeline::schedule_names()) {
    for (int round = 0; round < 10; ++round) {
      const auto [schedule, costs, contention] = random_case(rng, name);
      const double alone = pipeline::simulate(schedule, costs).makespan;
      const double seconds = simulate_contention(schedule, costs, contention).makespan;
      EXPECT_GE(seconds, alone * (1 - 1e-9)) << name;
      EXPECT_LE(seconds, alone * std::ranges::max(contention.slowdowns) * (1 + 1e-9)) << name;
    }
  }
}

// Devices that get an equal part of the cores in each of many small slices of time, at most a whole one each.
class Slices {
 public:
  Slices(const Schedule& schedule, const pipeline::Costs& costs, int replicas, double runnable)
      : schedule_(schedule), costs_(costs), replicas_(replicas), runnable_(runnable) {}

  double makespan(double slice) {
    const std::size_t devices = schedule_.devices.size();
    std::vector<std::size_t> next(devices, 0);
    std::vector<double> done(devices, 0);
    for (double time = 0;; time += slice) {
      std::vector<std::size_t> working;
      bool is_over = true;
      for (std::size_t d = 0; d < devices; ++d) {
        while (next[d] < schedule_.devices[d].size() && is_ready(schedule_.devices[d][next[d]]) &&
               done[d] >= seconds(schedule_.devices[d][next[d]])) {
          ended_.insert(key(schedule_.devices[d][next[d]++]));
          done[d] = 0;
        }
        if (next[d] == schedule_.devices[d].size()) continue;
        is_over = false;
        if (is_ready(schedule_.devices[d][next[d]])) working.push_back(d);
      }
      if (is_over) return time;
      const double part = std::min(1.0, runnable_ / (replicas_ * static_cast<double>(working.size())));
      for (const std::size_t d : working) done[d] += slice * part;
    }
  }

 private:
  using Key = std::tuple<char, int, int>;

  static Key key(const pipeline::Action& action) {
    const char kind = action.op == pipeline::Op::kForward ? 'F' : pipeline::makes_input_gradient(action.op) ? 'B' : '-';
    return {kind, index(action.stage), index(action.micro_batch)};
  }
  [[nodiscard]] bool is_ready(const pipeline::Action& action) const {
    const auto [kind, stage, micro_batch] = key(action);
    if (kind == 'F') return stage == 0 || ended_.contains({'F', stage - 1, micro_batch});
    if (kind == 'B') return stage + 1 == schedule_.stages || ended_.contains({'B', stage + 1, micro_batch});
    return true;
  }
  [[nodiscard]] double seconds(const pipeline::Action& action) const {
    const pipeline::StepCost& cost = costs_.stages[index(action.stage)];
    switch (action.op) {
      case pipeline::Op::kForward: return cost.forward;
      case pipeline::Op::kInputGradient: return cost.input;
      case pipeline::Op::kWeightGradient: return cost.weight;
      case pipeline::Op::kBackward: return cost.whole_backward();
      case pipeline::Op::kReduceGradient: return 0;
    }
    return 0;
  }

  const Schedule& schedule_;
  const pipeline::Costs& costs_;
  int replicas_;
  double runnable_;
  std::set<Key> ended_;
};

// n replicas on c cores: n / c times as long as one, where there are more than cores.
TEST(Contention, MoreReplicasThanCoresShareThem) {
  const Schedule schedule = schedule_for("gpipe", 1, 4);
  const pipeline::Costs costs{.stages = {{.forward = 1, .input = 1, .weight = 1}}};
  for (const int n : {1, 2, 3, 4, 8})
    for (const double c : {1.0, 1.5, 2.0, 4.0}) {
      const Contention contention{.slowdowns = {}, .replicas = n, .runnable = c};
      EXPECT_DOUBLE_EQ(simulate_contention(schedule, costs, contention).makespan, 12 * std::max(1.0, n / c))
          << n << " on " << c;
    }
}

// Two cores whose memory makes both half as slow again: four replicas get no more from them than two.
TEST(Contention, SharedCoresSlowEachOtherAsAnyDo) {
  const Schedule schedule = schedule_for("gpipe", 1, 4);
  const pipeline::Costs costs{.stages = {{.forward = 1, .input = 1, .weight = 1}}};
  const auto seconds = [&](int contenders, int replicas) {
    return simulate_contention(schedule, costs, {{1.5}, contenders, replicas, 2}).makespan;
  };
  EXPECT_DOUBLE_EQ(seconds(2, 2), 12 * 1.5);
  EXPECT_DOUBLE_EQ(seconds(2, 4), 2 * seconds(2, 2));
  EXPECT_DOUBLE_EQ(seconds(2, 8), 4 * seconds(2, 2));
  EXPECT_DOUBLE_EQ(seconds(4, 4), seconds(2, 4)) << "of four that were measured two ran at a time";
  EXPECT_DOUBLE_EQ(seconds(4, 2), seconds(2, 2));
}

// With one micro-batch one stage works at a time: the others need no core.
TEST(Contention, AStageThatWaitsTakesNoCore) {
  const pipeline::Costs costs{.stages = std::vector<pipeline::StepCost>(4, {.forward = 1, .input = 1, .weight = 1})};
  EXPECT_DOUBLE_EQ(simulate_contention(schedule_for("gpipe", 4, 1), costs, {{}, 1, 1, 1}).makespan, 12);
  EXPECT_DOUBLE_EQ(simulate_contention(schedule_for("gpipe", 4, 1), costs, {{}, 1, 2, 1}).makespan, 24);
}

TEST(Contention, SharedCoresAreLikeSlicesOfTime) {
  RngStream rng(4);
  for (const std::string name : {"gpipe", "1f1b", "zb-h1"}) {
    for (int round = 0; round < 6; ++round) {
      const int p = 2 + static_cast<int>(rng.below(3)), replicas = 1 + static_cast<int>(rng.below(2));
      const double runnable = rng.uniform(0.5, p * replicas);
      const Schedule schedule = schedule_for(name, p, 1 + p);
      pipeline::Costs costs;
      for (int s = 0; s < p; ++s)
        costs.stages.push_back({rng.uniform(0.1, 1), rng.uniform(0.1, 1), rng.uniform(0.1, 1)});
      const double wanted = Slices(schedule, costs, replicas, runnable).makespan(1e-4);
      const Contention contention{.slowdowns = {}, .replicas = replicas, .runnable = runnable};
      EXPECT_NEAR(simulate_contention(schedule, costs, contention).makespan, wanted, 2e-3 * wanted) << name;
    }
  }
}

// What all cores do in a second is no more than so many devices' work.
TEST(Contention, NoPipelineIsFasterThanItsWorkOnAllCores) {
  RngStream rng(5);
  for (const std::string& name : pipeline::schedule_names()) {
    for (int round = 0; round < 10; ++round) {
      auto [schedule, costs, contention] = random_case(rng, name);
      contention.runnable = rng.below(2) == 0 ? 2 : rng.uniform(0.5, 6);
      const pipeline::Simulation alone = pipeline::simulate(schedule, costs);
      double work = 0;
      for (const pipeline::DeviceTimes& device : alone.devices) work += device.busy * contention.replicas;
      const double seconds = simulate_contention(schedule, costs, contention).makespan;
      EXPECT_GE(seconds, work / contention.runnable * (1 - 1e-12)) << name;
      EXPECT_GE(seconds, alone.makespan * (1 - 1e-12)) << name;
      const auto devices = static_cast<double>(alone.devices.size()) * contention.replicas;
      const double most = std::max(1.0, devices / contention.runnable) * std::ranges::max(contention.slowdowns);
      EXPECT_LE(seconds, alone.makespan * most * (1 + 1e-12)) << name;
    }
  }
}

}  // namespace
}  // namespace sluice::tune
