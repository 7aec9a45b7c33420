// reductions_of() against times computed by hand, and what holds for any costs.
#include "tune/reductions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/rng.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;
using pipeline::StepCost;

constexpr double kRounding = 1e-9;

Schedule schedule_of(const std::string& name, int devices, int chunks) {
  return pipeline::with_reductions(pipeline::make_schedule(name, {.stages = devices, .micro_batches = chunks}));
}

std::vector<Reduction> reductions(const Schedule& schedule, const std::vector<StepCost>& stages,
                                  const StageGradients& gradients, const ReductionCosts& costs) {
  return reductions_of(schedule, pipeline::simulate(schedule, {.stages = stages}), gradients, costs);
}

void expect_times(const std::vector<Reduction>& buckets, const std::vector<std::pair<double, double>>& ready_and_end) {
  ASSERT_EQ(buckets.size(), ready_and_end.size());
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    EXPECT_NEAR(buckets[i].ready, ready_and_end[i].first, kRounding) << i;
    EXPECT_NEAR(buckets[i].end, ready_and_end[i].second, kRounding) << i;
  }
}

// Two micro-batches: F 0..1, F 1..2, B 2..8, B 8..14. The last layer's part of the backward comes first.
TEST(Reductions, BeginInsideTheLastBackward) {
  const Schedule schedule = schedule_of("gpipe", 1, 2);
  const std::vector<StepCost> stage{{.forward = 1, .input = 2, .weight = 4}};
  const StageGradients layers{
      {{.bytes = 100, .weight = 1}, {.bytes = 100, .backward = 2}, {.bytes = 100, .backward = 3}}};
  const LinkCost link{.latency_s = 0.25, .bytes_per_s = 100};
  expect_times(reductions(schedule, stage, layers, {link, 100}), {{9, 10.25}, {11, 12.25}, {14, 15.25}});
  // Half a layer each: the second half waits for the first one's sum.
  expect_times(reductions(schedule, stage, layers, {link, 50}),
               {{9, 9.75}, {9, 10.5}, {11, 11.75}, {11, 12.5}, {14, 14.75}, {14, 15.5}});
  // What is left over is a bucket too.
  expect_times(reductions(schedule, stage, layers, {link, 200}), {{11, 13.25}, {14, 15.25}});
  expect_times(reductions(schedule, stage, layers, {link, 0}), {{14, 17.25}});
  expect_times(reductions(schedule, stage, layers, {link, 0, /*sent_share=*/0.5}), {{14, 15.75}});
}

TEST(Reductions, OfASplitBackwardComeFromItsWeightGradients) {
  Schedule schedule{.name = "split", .stages = 1, .micro_batches = 1, .devices = {{}}};
  using pipeline::Op;
  for (const Op op : {Op::kForward, Op::kInputGradient, Op::kWeightGradient, Op::kReduceGradient})
    schedule.devices[0].push_back({.op = op});
  const std::vector<StepCost> stage{{.forward = 1, .input = 4, .weight = 3}};
  const StageGradients layers{{{.bytes = 10, .backward = 4, .weight = 1}, {.bytes = 10, .backward = 3, .weight = 2}}};
  expect_times(reductions(schedule, stage, layers, {LinkCost{.bytes_per_s = 10}, 10}), {{6, 7}, {8, 9}});
}

TEST(Reductions, FrozenLayersHaveNone) {
  const Schedule schedule = schedule_of("gpipe", 1, 1);
  const std::vector<StepCost> stage{{.forward = 1, .input = 1, .weight = 1}};
  EXPECT_TRUE(reductions(schedule, stage, {{{.backward = 2}}}, {LinkCost{}, 5}).empty());
  EXPECT_TRUE(reductions(schedule, stage, {}, {LinkCost{}, 5}).empty());
  // Below what is trained there is only time: the sum does not wait for it.
  expect_times(reductions(schedule, stage, {{{.bytes = 3, .backward = 0.5}, {.backward = 1.5}}}, {LinkCost{}, 5}),
               {{1.5, 1.5}});
}

TEST(Reductions, ShareOneNetworkAndKeepTheirOrder) {
  RngStream rng(5);
  for (const std::string& name : pipeline::schedule_names()) {
    for (int round = 0; round < 20; ++round) {
      const int p = 1 + static_cast<int>(rng.below(4));
      const Schedule schedule = schedule_of(name, p, 2 * p);
      std::vector<StepCost> stages;
      StageGradients gradients;
      std::vector<double> bytes;
      for (int s = 0; s < schedule.stages; ++s) {
        stages.push_back({1, 0, 0});
        bytes.push_back(0);
        gradients.emplace_back();
        for (std::uint64_t l = 0; l < 1 + rng.below(5); ++l) {
          const double input = rng.uniform(), weight = rng.uniform();
          gradients[s].push_back({100 * rng.uniform(), input + weight, weight});
          stages[s].input += input, stages[s].weight += weight;
          bytes[s] += gradients[s].back().bytes;
        }
      }
      const ReductionCosts costs{LinkCost{rng.uniform(), 50.0}, 10 + 100 * rng.uniform()};
      const auto simulation = pipeline::simulate(schedule, {.stages = stages});
      std::vector<double> network{0}, stage_end(schedule.stages, 0.0);
      for (const Reduction& bucket : reductions_of(schedule, simulation, gradients, costs)) {
        const double sent = bucket.end - costs.all_reduce.latency_s, start = sent - bucket.bytes / 50;
        EXPECT_GE(start, std::max({bucket.ready, network.back(), stage_end[bucket.stage]}) - kRounding) << name;
        EXPECT_LE(bucket.ready, simulation.makespan + kRounding) << name;
        EXPECT_LE(bucket.bytes, costs.bucket_bytes + kRounding) << name;
        network.push_back(sent);
        stage_end[bucket.stage] = bucket.end;
        bytes[bucket.stage] -= bucket.bytes;
      }
      for (const double left : bytes) EXPECT_NEAR(left, 0, 1e-6) << name;
    }
  }
}

}  // namespace
}  // namespace sluice::tune
