// What planning takes from a profile: costs of micro-batches that were measured, and of others.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "example_profile.h"

namespace sluice::profiler {
namespace {

using nlohmann::ordered_json;
using test::example;

// Of so many samples, in the order of bytes_line().
std::vector<std::uint64_t> numbers_of(const LayerCost& cost, std::uint64_t samples) {
  const WorkingBytes& working = cost.working;
  std::vector<std::uint64_t> numbers;
  for (const AffineBytes& bytes :
       {cost.saved_bytes, cost.loss_bytes, cost.loss_working, cost.stash_bytes, working.forward, working.backward,
        working.input_gradient, working.weight_gradient, working.held_backward, working.held_input_gradient})
    numbers.push_back(bytes.at(samples));
  return numbers;
}

// More by one each.
std::vector<std::uint64_t> from(std::uint64_t first) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 10; ++i) numbers.push_back(first + i);
  return numbers;
}

TEST(ProfileCosts, TimesAreScaledToThoseOfWholeSteps) {
  LayerProfile profile = example();
  ASSERT_DOUBLE_EQ(profile.compute_scale(), 0.36 / 0.32);
  const LayerCost alone = profile.layers.at(0).cost, scaled = profile.costs().at(0);
  for (const double samples : {0.5, 1.0, 7.0, 32.0, 100.0}) {
    EXPECT_NEAR(scaled.forward.at(samples), 1.125 * alone.forward.at(samples), 1e-12);
    EXPECT_NEAR(scaled.backward.at(samples), 1.125 * alone.backward.at(samples), 1e-12);
    EXPECT_NEAR(scaled.input_gradient.at(samples), 1.125 * alone.input_gradient.at(samples), 1e-12);
    EXPECT_NEAR(scaled.weight_gradient.at(samples), 1.125 * alone.weight_gradient.at(samples), 1e-12);
  }
  EXPECT_DOUBLE_EQ(scaled.first_forward_s, 1.125 * alone.first_forward_s);
  EXPECT_DOUBLE_EQ(scaled.first_backward_s, 1.125 * alone.first_backward_s);
  EXPECT_EQ(scaled.slowdown, alone.slowdown);
  profile.step->compute_s = 0;
  EXPECT_EQ(profile.compute_scale(), 1) << "nothing was measured";
  profile.step = StepSummary{.compute_s = 0.36};
  EXPECT_EQ(profile.compute_scale(), 1) << "nothing was predicted";
  profile.step.reset();
  EXPECT_EQ(profile.compute_scale(), 1);
}

// Of two devices of a machine that has nothing else to do. spread: of times, in turn above and below a line.
LayerProfile measured_with(double slowdown, double spread, double scale) {
  LayerProfile profile{.micro_batch = 4, .contenders = 2, .layers = std::vector<MeasuredLayer>(2)};
  for (MeasuredLayer& layer : profile.layers) {
    for (const std::int64_t samples : {1, 2, 4, 8, 16}) {
      const double off = samples == 2 || samples == 8 ? 1 + spread : 1;
      const auto seconds = 1e-3 * static_cast<double>(samples) * off;
      layer.times.push_back({samples, seconds, seconds, seconds, 2 * seconds});
    }
    set_costs(layer);
    layer.cost.slowdown = slowdown;
  }
  profile.step = StepSummary{.compute_s = scale, .predicted_compute_s = 1};
  return profile;
}

TEST(ProfileQuality, ABusyMachineIsToldByNumbersThatNoQuietOneGives) {
  EXPECT_EQ(measured_with(1.9, 0.1, 1.4).disturbance(), "");
  EXPECT_EQ(measured_with(4.5, 0, 1).disturbance(), "2 devices slow each other down 4.5 times");
  EXPECT_NE(measured_with(1, 0.6, 1).disturbance().find("times scatter by "), std::string::npos);
  EXPECT_EQ(measured_with(1, 0, 1.9).disturbance(), "steps computed 1.9 times as long as their layers alone");
  EXPECT_EQ(measured_with(1, 0, 0.5).disturbance(), "steps computed 0.5 times as long as their layers alone");
  LayerProfile eight = measured_with(4.5, 0, 1);
  eight.contenders = 8;
  EXPECT_EQ(eight.disturbance(), "") << "so many may";
}

TEST(ProfileQuality, IsDescribedAsFarAsItIsKnown) {
  LayerProfile profile = measured_with(1.1, 0, 1.02);
  EXPECT_EQ(profile.describe_quality(),
            "slow-down 1.10, times scatter by 0.0 %, steps 1.02 times as long as their layers");
  profile.step.reset();
  profile.contenders = 1;
  EXPECT_EQ(profile.describe_quality(), "times scatter by 0.0 %");
  for (MeasuredLayer& layer : profile.layers) layer.times.resize(2), set_costs(layer);
  EXPECT_EQ(profile.describe_quality(), "with one or two batch sizes");
}

TEST(ProfileCosts, AFirstUseIsOfMicroBatchesWhoseKernelsTransformWeights) {
  LayerProfile profile = example();
  profile.layers.at(0).bytes.at(1).transformed = 0;
  for (const auto& [samples, has] : {std::pair{1, true}, {2, false}, {4, false}, {5, true}, {100, true}}) {
    const LayerCost cost = profile.costs_at(samples).at(0);
    EXPECT_DOUBLE_EQ(cost.first_forward_s, has ? 1.125e-3 : 0) << samples;
    EXPECT_DOUBLE_EQ(cost.first_backward_s, has ? 2.25e-3 : 0) << samples;
  }
  profile.micro_batch = 4;
  EXPECT_EQ(profile.costs().at(0).first_forward_s, 0) << "the configured one";
  profile.layers.at(0).bytes.clear();
  EXPECT_GT(profile.costs_at(2).at(0).first_forward_s, 0) << "nothing is known of its kernels";
}

TEST(ProfileCosts, AnAllReduceIsThatOfTheReplicasOrTheNextMore) {
  LayerProfile profile;
  EXPECT_EQ(profile.all_reduce_of(1, 2), nullptr);
  profile.all_reduces = {{1, 2, {.latency_s = 2}}, {1, 8, {.latency_s = 8}}, {1, 4, {.latency_s = 4}}};
  const auto latency = [&](int replicas) { return profile.all_reduce_of(1, replicas)->latency_s; };
  EXPECT_EQ(latency(2), 2);
  EXPECT_EQ(latency(3), 4);
  EXPECT_EQ(latency(4), 4);
  EXPECT_EQ(latency(5), 8);
  EXPECT_EQ(latency(9), 8) << "the largest there is";
  EXPECT_EQ(profile.all_reduce_of(2, 2), nullptr) << "of a network nothing is known";
}

TEST(ProfileCosts, TheBytesOfAMicroBatchAreThoseOfItsKernels) {
  const LayerProfile profile = parse_profile(to_json_text(example()), "p.json");
  const auto at = [&](std::int64_t samples) { return numbers_of(profile.costs_at(samples).at(0), samples); };
  EXPECT_EQ(at(1), from(100 + 10));
  EXPECT_EQ(at(2), from(50 + 20 * 2));
  EXPECT_EQ(at(4), from(50 + 20 * 4));
  EXPECT_EQ(at(5), from(1000 + 5 * 5));
  EXPECT_EQ(at(100), from(30 + 60 * 100)) << "the last line goes on";
  EXPECT_EQ(profile.costs_at(3).at(0).transformed_bytes, 50);
  EXPECT_EQ(profile.costs_at(3).at(0).working_once->forward, (AffineBytes{50 + 14, 20}));
  EXPECT_FALSE(profile.costs_at(1).at(0).saves_input);
  EXPECT_TRUE(profile.costs_at(2).at(0).saves_input);
  EXPECT_FALSE(profile.costs_at(2).at(0).stashes_input);
  EXPECT_EQ(profile.costs_at(8).at(0).forward.a_s, profile.costs().at(0).forward.a_s) << "times stay";
}

// Profiles of before have no such field: then all transformed weights are taken to be there.
TEST(ProfileCosts, WhatAPassOfOneMicroBatchTakesMayNotBeKnown) {
  ordered_json json = ordered_json::parse(to_json_text(example()));
  ordered_json& layer = json["layers"][0];
  layer.erase("working_once_bytes");
  for (ordered_json& line : layer["bytes"]) line.erase("working_once_bytes");
  const LayerProfile profile = parse_profile(json.dump(), "p.json");
  EXPECT_FALSE(profile.costs().at(0).working_once.has_value());
  EXPECT_FALSE(profile.costs_at(3).at(0).working_once.has_value());
  const LayerCost most = profile.most_at(20).at(0);
  EXPECT_EQ(most.working_once->forward.at(20), std::max(30 + 4 + 60 * 20 + 30, 1000 + 4 + 5 * 20 + 1000));
  EXPECT_EQ(most.working_once->weight_gradient, most.working.weight_gradient);
  EXPECT_EQ(to_json_text(profile), json.dump(2) + "\n");
}

TEST(ProfileCosts, BetweenTwoSizesTheMostIsThatOfTheKernelsOfBoth) {
  const LayerProfile profile = parse_profile(to_json_text(example()), "p.json");
  const auto most = [&](std::int64_t samples) { return numbers_of(profile.most_at(samples).at(0), samples); };
  EXPECT_EQ(most(4), from(50 + 20 * 4)) << "as measured";
  EXPECT_EQ(most(3), from(1000 + 5 * 3)) << "the kernels of 5 samples and more";
  EXPECT_EQ(most(10), from(1000 + 5 * 10));
  EXPECT_EQ(most(20), from(30 + 60 * 20));
  EXPECT_EQ(profile.most_at(20).at(0).transformed_bytes, 1000);
  EXPECT_EQ(profile.most_at(10).at(0).transformed_bytes, 1000) << "its own are more than those around it";
  EXPECT_EQ(profile.most_at(20).at(0).working_once->backward.at(20), 30 + 15 + 60 * 20);
  EXPECT_EQ(profile.most_at(10).at(0).working_once->backward.at(10), 1000 + 15 + 5 * 10);
}

// Up to 32 samples the first moment of a backward is the most of it, and the line is flat; beyond, the second is.
TEST(ProfileCosts, BeyondTheLargestSizeTheMostIsThatOfMomentsThatGrowFaster) {
  const auto moments = [](std::uint64_t samples) { return std::max<std::uint64_t>(9600, 300 * samples); };
  LayerProfile profile = example();
  LayerBytes& last = profile.layers.at(0).bytes.back();
  ASSERT_EQ(last.samples, 32);
  last.working.backward = {.fixed = moments(32), .per_sample = 0};
  last.working_once->backward = last.working.backward;
  for (const std::int64_t samples : {33, 46, 100}) {
    const LayerCost most = profile.most_at(samples).at(0);
    const auto n = static_cast<std::uint64_t>(samples);
    EXPECT_GE(most.working.backward.at(n), moments(n)) << samples;
    EXPECT_GE(most.working_once->backward.at(n), moments(n)) << samples;
    EXPECT_GE(most.saved_bytes.at(n), 30 + 60 * n) << samples;
    EXPECT_LE(most.saved_bytes.at(n), (30 + 60 * 32) * n / 32 + n) << "no more than each sample's share, rounded up";
  }
  EXPECT_EQ(profile.most_at(32).at(0).working.backward, last.working.backward) << "as measured";
}

}  // namespace
}  // namespace sluice::profiler
