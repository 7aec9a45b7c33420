// CutBound: no cut is faster than the bound of its beginning, and the bound only grows as more of it is known.
#include "tune/cut_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "made_up_space.h"
#include "pipeline/schedule/generators.h"

namespace sluice::tune {
namespace {

struct CutCase {
  std::vector<LayerCost> layers;
  StepOverheads overheads;
  pipeline::Schedule schedule;
  Recompute recompute = Recompute::kNone;
};

CutCase made_up_case(RngStream& rng) {
  const bool slow_down = rng.below(2) == 0;
  const std::vector<std::string> names(pipeline::schedule_names().begin(), pipeline::schedule_names().end());
  const std::string name = names[rng.below(names.size())];
  const int devices = 1 + static_cast<int>(rng.below(4));
  CutCase made;
  made.schedule = pipeline::with_reductions(
      pipeline::make_schedule(name, {.stages = devices, .micro_batches = 8 + static_cast<int>(rng.below(9))}));
  made.layers = test::made_up_layers(rng, made.schedule.stages + static_cast<int>(rng.below(8)), slow_down);
  if (rng.below(5) == 0) made.layers.front().slowdown = 0.7;
  made.overheads = test::made_up_overheads(rng, slow_down);
  made.overheads.replicas_on_machine = 1 + static_cast<int>(rng.below(3));
  if (rng.below(3) == 0) made.overheads.runnable = 0.5 + static_cast<double>(rng.below(10)) / 2;
  if (!made.overheads.borders.empty()) made.overheads.borders.assign(made.schedule.stages, made.overheads.borders[0]);
  made.recompute = rng.below(2) == 0 ? Recompute::kNone : Recompute::kOpen;
  return made;
}

TEST(CutBound, IsNeverAboveAnyCutThatBeginsSo) {
  RngStream rng(1);
  double tightness = 0;
  constexpr int kCases = 400;
  for (int i = 0; i < kCases; ++i) {
    const CutCase made = made_up_case(rng);
    const int layers = static_cast<int>(made.layers.size()), stages = made.schedule.stages;
    const double micro_batch = 1 + static_cast<double>(rng.below(4));
    const CutBound bound(made.layers, made.schedule, made.recompute, micro_batch, made.overheads, 0.5);
    std::vector<int> ends(layers - 1);
    std::iota(ends.begin(), ends.end(), 1);
    shuffle(ends, rng);
    ends.resize(stages - 1);
    std::ranges::sort(ends);
    ends.push_back(layers);
    Partition partition{std::vector<int>(stages)};
    std::adjacent_difference(ends.begin(), ends.end(), partition.layers_per_stage.begin());
    std::vector<bool> recompute(stages);
    for (int s = 0; s < stages; ++s) recompute[s] = made.recompute == Recompute::kOpen && rng.below(2) == 0;
    StepCosts costs = step_costs(made.layers, partition, recompute, micro_batch, made.overheads);
    costs.frozen_s = 0.5;
    const double seconds = predict_step(made.schedule, costs).seconds;
    for (int known = 0; known <= stages; ++known) {
      const double least = bound.of(std::span(ends).first(known));
      EXPECT_LE(least, seconds * (1 + 1e-12)) << made.schedule.name << " case " << i << ", " << known << " stages";
      EXPECT_LE(known == 0 ? 0 : bound.of_last(std::span(ends).first(known)), seconds * (1 + 1e-12));
      if (known == stages) tightness += least / seconds / kCases;
    }
  }
  std::printf("bound of a whole cut: %.3f of its time in the mean\n", tightness);
  EXPECT_GT(tightness, 0.7);
}

// A slow network begins with the last layer, while the last backward of the others still runs.
TEST(CutBound, IsNotAboveAStepWhoseAllReduceIsLongerThanItsCompute) {
  RngStream rng(2);
  for (const int devices : {1, 2}) {
    const pipeline::Schedule schedule =
        pipeline::with_reductions(pipeline::make_schedule("gpipe", {.stages = devices, .micro_batches = 2}));
    std::vector<LayerCost> layers = test::made_up_layers(rng, 8, /*slow_down=*/false);
    for (LayerCost& layer : layers) layer.gradient_bytes = 10;
    const StepOverheads overheads{.all_reduce = LinkCost{.bytes_per_s = 0.1}, .bucket_bytes = 10};
    const Partition partition{std::vector<int>(devices, 8 / devices)};
    std::vector<int> ends{8 / devices};
    if (devices == 2) ends.push_back(8);
    const double seconds =
        predict_step(schedule, step_costs(layers, partition, std::vector<bool>(devices), 1, overheads)).seconds;
    const double least = CutBound(layers, schedule, Recompute::kNone, 1, overheads, 0).of(ends);
    EXPECT_LE(least, seconds * (1 + 1e-12)) << devices;
    EXPECT_GT(least, 0.98 * seconds) << "the network alone takes most of it, on " << devices;
  }
}

}  // namespace
}  // namespace sluice::tune
