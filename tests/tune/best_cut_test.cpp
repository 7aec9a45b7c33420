// The best cut under a memory limit, against trying every cut with every choice of recomputation.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "core/concat.h"
#include "core/rng.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/simulate.h"
#include "tune/partition.h"

namespace sluice::tune {
namespace {

constexpr std::uint64_t kSamples = 2;
constexpr double kNever = 1e300;
constexpr double kRounding = 1e-9;

std::vector<LayerCost> random_costs(RngStream& rng, int layers) {
  std::vector<LayerCost> costs;
  const auto bytes = [&](std::uint64_t most) { return AffineBytes{rng.below(most), 1 + rng.below(most)}; };
  for (int i = 0; i < layers; ++i) {
    const std::uint64_t input = i == 0 ? 4 : costs.back().output_bytes;
    costs.push_back({.forward = {.a_s = rng.uniform(), .b_s = rng.uniform()},
                     .input_gradient = {.a_s = rng.uniform(), .b_s = rng.uniform()},
                     .weight_gradient = {.a_s = rng.uniform(), .b_s = rng.uniform()},
                     .input_bytes = input,
                     .output_bytes = 1 + rng.below(10),
                     .saved_bytes = bytes(50),
                     .saves_input = rng.below(2) == 0,
                     .saves_output = rng.below(2) == 0,
                     .stash_bytes = bytes(20),
                     .working = {bytes(60), bytes(30), bytes(30), bytes(20), bytes(40), bytes(40)},
                     .transformed_bytes = rng.below(20),
                     .parameter_bytes = 1 + rng.below(100),
                     .gradient_bytes = rng.below(20),
                     .optimizer_bytes = rng.below(40)});
  }
  costs.back().loss_bytes = bytes(30);
  costs.back().loss_working = bytes(60);
  return costs;
}

struct Tried {
  double slowest = kNever;  // device; kNever: none fits
  Cut cut;
  double longest_makespan = 0;                   // of those with that slowest device
  std::uint64_t least_peak = ~std::uint64_t{0};  // of the largest device, whatever the limit
};

double slowest_device(std::span<const LayerCost> costs, const pipeline::Schedule& schedule, const Cut& cut) {
  const auto times = stage_times(costs, kSamples, cut.partition, cut.recompute);
  std::vector<double> devices(schedule.devices.size(), 0.0);
  const auto owners = pipeline::stage_owners(schedule);
  for (std::size_t s = 0; s < times.size(); ++s) devices[owners[s]] += times[s];
  return *std::ranges::max_element(devices);
}

std::uint64_t largest_device(std::span<const LayerCost> costs, const pipeline::Schedule& schedule, const Cut& cut) {
  return std::ranges::max(device_peaks(costs, schedule, cut.partition, cut.recompute, kSamples, true));
}

double makespan(std::span<const LayerCost> costs, const pipeline::Schedule& schedule, const Cut& cut) {
  pipeline::Costs times;
  for (std::size_t s = 0, layer = 0; s < cut.recompute.size(); ++s) {
    pipeline::StepCost stage{0, 0, 0};
    for (int i = 0; i < cut.partition.layers_per_stage[s]; ++i, ++layer) {
      stage.forward += costs[layer].forward.at(kSamples);
      stage.input +=
          costs[layer].input_gradient.at(kSamples) + (cut.recompute[s] ? costs[layer].forward.at(kSamples) : 0.0);
      stage.weight += costs[layer].weight_gradient.at(kSamples);
    }
    times.stages.push_back(stage);
  }
  return pipeline::simulate(schedule, times).makespan;
}

void for_each_cut(int layers, int stages, const std::function<void(const Partition&)>& use) {
  std::vector<int> counts;
  const std::function<void(int)> place = [&](int left) {
    const int missing = stages - 1 - static_cast<int>(counts.size());
    for (int count = missing == 0 ? left : 1; count <= left - missing; ++count) {
      counts.push_back(count);
      missing == 0 ? use({counts}) : place(left - count);
      counts.pop_back();
    }
  };
  place(layers);
}

Tried try_every_cut(std::span<const LayerCost> costs, const pipeline::Schedule& schedule, const CutRules& rules) {
  Tried best;
  const int choices = rules.recompute == Recompute::kOpen && rules.memory_limit > 0 ? 1 << schedule.stages : 1;
  for_each_cut(static_cast<int>(costs.size()), schedule.stages, [&](const Partition& partition) {
    for (int choice = 0; choice < choices; ++choice) {
      Cut cut{.partition = partition};
      for (int s = 0; s < schedule.stages; ++s)
        cut.recompute.push_back(rules.recompute == Recompute::kLayer || ((choice >> s) & 1) != 0);
      const std::uint64_t peak = largest_device(costs, schedule, cut);
      best.least_peak = std::min(best.least_peak, peak);
      if (rules.memory_limit > 0 && peak > rules.memory_limit) continue;
      const double slowest = slowest_device(costs, schedule, cut);
      const double end = makespan(costs, schedule, cut);
      if (slowest < best.slowest - kRounding) best = {slowest, cut, 0, best.least_peak};
      if (slowest < best.slowest + kRounding) best.longest_makespan = std::max(best.longest_makespan, end);
    }
  });
  return best;
}

struct Case {
  std::string schedule;
  int devices;
  int virtual_stages;
};

class BestCut : public testing::TestWithParam<Case> {};

TEST_P(BestCut, IsAsGoodAsTryingEveryCutAndEveryRecomputation) {
  RngStream rng(11);
  const auto schedule = pipeline::make_schedule(GetParam().schedule, {.stages = GetParam().devices,
                                                                      .micro_batches = 2 * GetParam().devices,
                                                                      .virtual_stages = GetParam().virtual_stages});
  int fitting = 0, recomputing = 0;
  for (int round = 0; round < 60; ++round) {
    const int layers = schedule.stages + static_cast<int>(rng.below(4));
    const auto costs = random_costs(rng, layers);
    CutRules rules{.micro_batch = kSamples,
                   .most_samples = kSamples,
                   .recompute = std::array{Recompute::kNone, Recompute::kLayer, Recompute::kOpen}[round % 3]};
    const Tried free = try_every_cut(costs, schedule, rules);
    // From too little for any to enough for all.
    const std::uint64_t peak = largest_device(costs, schedule, free.cut);
    if (round % 4 != 0) rules.memory_limit = peak / 2 + rng.below(peak);
    const Tried best = try_every_cut(costs, schedule, rules);
    const Cut cut = best_cut(costs, schedule, rules);
    ASSERT_TRUE(cut.is_proven);
    ASSERT_EQ(cut.fits, best.slowest < kNever) << "round " << round;
    if (!cut.fits) {
      if (GetParam().virtual_stages == 1) {
        EXPECT_EQ(largest_device(costs, schedule, cut), best.least_peak);
      }
      continue;
    }
    ++fitting;
    recomputing += rules.recompute == Recompute::kOpen && std::ranges::count(cut.recompute, true) > 0 ? 1 : 0;
    if (rules.memory_limit > 0) {
      EXPECT_LE(largest_device(costs, schedule, cut), rules.memory_limit);
    }
    if (GetParam().virtual_stages == 1) {
      EXPECT_NEAR(slowest_device(costs, schedule, cut), best.slowest, kRounding) << "round " << round;
    } else if (slowest_device(costs, schedule, cut) > best.slowest + kRounding) {
      EXPECT_LE(makespan(costs, schedule, cut), best.longest_makespan) << "round " << round;
    }
  }
  EXPECT_GT(fitting, 20);
  EXPECT_GT(recomputing, 0) << "no limit asked for a recomputation";
}

INSTANTIATE_TEST_SUITE_P(Schedules, BestCut,
                         testing::Values(Case{"1f1b", 2, 1}, Case{"gpipe", 3, 1}, Case{"zb-h1", 2, 1},
                                         Case{"interleaved", 2, 2}, Case{"zb-v", 2, 2}, Case{"dualpipe-v", 2, 2}),
                         [](const auto& parameter) {
                           std::string name = parameter.param.schedule;
                           std::erase(name, '-');
                           return concat(name, "_", parameter.param.devices);
                         });

TEST(BestCut, WithoutALimitNothingIsRecomputed) {
  RngStream rng(3);
  const auto costs = random_costs(rng, 6);
  const auto schedule = pipeline::make_schedule("1f1b", {.stages = 3, .micro_batches = 4});
  const Cut cut = best_cut(costs, schedule, {.micro_batch = 2, .recompute = Recompute::kOpen});
  EXPECT_EQ(cut.recompute, (std::vector<bool>{false, false, false}));
  EXPECT_EQ(cut.partition, best_cut(costs, schedule, {.micro_batch = 2}).partition);
}

TEST(BestCut, StagesOfADeviceAreWeighedTogether) {
  // Devices 0 and 1 take stages 0 and 2, 1 and 3. The least slowest stage alone would be 4, whatever shares its device.
  std::vector<LayerCost> costs;
  for (const double seconds : {4.0, 1.0, 1.0, 4.0, 1.0, 1.0}) costs.push_back({.forward = {.a_s = seconds}});
  const auto schedule = pipeline::make_schedule("interleaved", {.stages = 2, .micro_batches = 4, .virtual_stages = 2});
  const Cut cut = best_cut(costs, schedule, {});
  EXPECT_DOUBLE_EQ(slowest_device(costs, schedule, cut), 6);
}

TEST(BestCut, StagesRecomputeAsListed) {
  RngStream rng(11);
  const auto costs = random_costs(rng, 8);
  for (const int virtual_stages : {1, 2}) {
    const auto schedule = pipeline::make_schedule(virtual_stages == 1 ? "1f1b" : "interleaved",
                                                  {.stages = 2, .micro_batches = 4, .virtual_stages = virtual_stages});
    CutRules rules{.micro_batch = kSamples, .most_samples = kSamples};
    rules.partition = Partition{std::vector<int>(2 * virtual_stages, 4 / virtual_stages)};
    rules.recompute_of_stage = virtual_stages == 1 ? std::vector{false, true} : std::vector{true, false, false, true};
    EXPECT_EQ(best_cut(costs, schedule, rules).recompute, rules.recompute_of_stage);
    EXPECT_EQ(smallest_cut(costs, schedule, rules).recompute, rules.recompute_of_stage);
    rules.memory_limit = 1;
    EXPECT_EQ(best_cut(costs, schedule, rules).recompute, rules.recompute_of_stage) << "nothing fits";
  }
}

TEST(BestCut, ManyLayersAreSearchedToAGoodCut) {
  RngStream rng(9);
  const auto costs = random_costs(rng, 98);  // ViT-L of half blocks
  const auto schedule = pipeline::make_schedule("interleaved", {.stages = 8, .micro_batches = 16, .virtual_stages = 2});
  CutRules rules{.micro_batch = kSamples, .most_samples = kSamples, .recompute = Recompute::kOpen};
  const Cut free = best_cut(costs, schedule, rules);
  double all = 0;
  for (const LayerCost& cost : costs) all += cost.seconds(kSamples);
  EXPECT_LT(slowest_device(costs, schedule, free), 1.1 * all / 8);
  EXPECT_EQ(std::accumulate(free.partition.layers_per_stage.begin(), free.partition.layers_per_stage.end(), 0), 98);

  rules.memory_limit = largest_device(costs, schedule, free) * 3 / 4;
  const Cut limited = best_cut(costs, schedule, rules);
  ASSERT_TRUE(limited.fits);
  EXPECT_LE(largest_device(costs, schedule, limited), rules.memory_limit);
  EXPECT_LT(slowest_device(costs, schedule, limited), 1.5 * all / 8);
}

}  // namespace
}  // namespace sluice::tune
