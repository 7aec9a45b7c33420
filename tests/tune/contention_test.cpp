// simulate_contention() against times computed by hand, and bounds that hold for any costs.
#include "tune/contention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
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

TEST(Contention, IsBetweenNoneAndAllTheTime) {
  RngStream rng(3);
  for (const std::string& name : pipeline::schedule_names()) {
    for (int round = 0; round < 10; ++round) {
      const int p = 1 + static_cast<int>(rng.below(4)), replicas = 1 + static_cast<int>(rng.below(3));
      const Schedule schedule = schedule_for(name, p, 2 * p);
      pipeline::Costs costs;
      Contention contention{.contenders = std::max(2, p * replicas), .replicas = replicas};
      for (int s = 0; s < schedule.stages; ++s) {
        costs.stages.push_back({rng.uniform(0.1, 1), rng.uniform(0.1, 1), rng.uniform(0.1, 1)});
        contention.slowdowns.push_back(rng.uniform(1, 1.6));
      }
      const double alone = pipeline::simulate(schedule, costs).makespan;
      const double seconds = simulate_contention(schedule, costs, contention).makespan;
      EXPECT_GE(seconds, alone * (1 - 1e-9)) << name;
      EXPECT_LE(seconds, alone * std::ranges::max(contention.slowdowns) * (1 + 1e-9)) << name;
    }
  }
}

}  // namespace
}  // namespace sluice::tune
