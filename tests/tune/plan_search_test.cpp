// search_plans() against every plan of small spaces, tried one by one.
#include "tune/plan_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "made_up_space.h"

namespace sluice::tune {
namespace {

using test::EveryPlan;

constexpr double kSearchRounding = 1e-7;

// What is said to have no room has none.
void expect_no_room(const SearchSpace& space, const SearchResult& found, const std::string& which) {
  for (const Refusal& refusal : found.refusals) {
    if (refusal.plan.partition.layers_per_stage.empty() || refusal.why.find(" needs ") == std::string::npos) continue;
    const MemoryModel model{space.costs_of(refusal.plan).layers, space.shares_memory, space.processes};
    EXPECT_GT(estimate_bytes(model, refusal.plan).value(), space.memory_limit) << which << ": " << refusal.why;
  }
}

void expect_best_of(const SearchSpace& space, const EveryPlan& all, const std::string& which) {
  const SearchResult found = search_plans(space);
  std::vector<double> wanted = all.best_rates();
  if (wanted.size() > kMostCandidates) wanted.resize(kMostCandidates);
  EXPECT_TRUE(found.is_proven) << which;
  expect_no_room(space, found, which);
  ASSERT_EQ(found.best.size(), wanted.size()) << which;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Candidate& candidate = found.best[i];
    EXPECT_NEAR(candidate.samples_per_s / wanted[i], 1, kSearchRounding) << which << " place " << i;
    const SlotCosts costs = space.costs_of(candidate.plan);
    const double samples =
        static_cast<double>(candidate.plan.global_batch) / (candidate.plan.replicas * space.processes);
    EXPECT_DOUBLE_EQ(candidate.step.seconds,
                     predict_step(candidate.plan, costs.layers, samples, costs.overheads).seconds);
    ASSERT_EQ(static_cast<int>(candidate.device_bytes.size()), candidate.plan.devices());
    EXPECT_TRUE(space.memory_limit == 0 || std::ranges::max(candidate.device_bytes) <= space.memory_limit) << which;
  }
}

TEST(PlanSearch, FindsWhatTryingEveryPlanFinds) {
  RngStream rng(1);
  std::size_t plans = 0, most = 0;
  for (int i = 0; i < 600; ++i) {
    const SearchSpace space = test::made_up_space(rng);
    const EveryPlan all(space);
    expect_best_of(space, all, concat("case ", i));
    plans += all.count(), most = std::max(most, all.count());
  }
  std::printf("plans tried one by one: %zu, of one space up to %zu\n", plans, most);
}

// Limits from what nothing fits to what everything fits.
TEST(PlanSearch, FindsWhatFits) {
  RngStream rng(2);
  int without_room = 0;
  for (int i = 0; i < 400; ++i) {
    SearchSpace space = test::made_up_space(rng);
    space.memory_limit = 200 + rng.below(3000);
    space.recompute = {rng.below(2) == 0 ? Recompute::kNone : Recompute::kLayer};
    const EveryPlan all(space);
    without_room += all.count() == 0 ? 1 : 0;
    expect_best_of(space, all, concat("case ", i));
  }
  EXPECT_GT(without_room, 5);
}

// On a device that is alone several stages are no plan of their own: 1F1B with one is as fast, and needs no more room.
TEST(PlanSearch, StagesOfADeviceAloneAreOne) {
  RngStream rng(5);
  int dropped = 0;
  for (int i = 0; i < 400; ++i) {
    SearchSpace space = test::made_up_space(rng);
    space.devices = {1}, space.replicas = {1}, space.processes = 1;
    space.schedules = {{"1f1b", 1, ""}, {"interleaved", 2, ""}, {"looped-bfs", 2, ""}};
    if (rng.below(2) == 0) space.memory_limit = 300 + rng.below(2000);
    const std::vector<double> all = EveryPlan(space, /*in_all_orders=*/true).best_rates();
    const SearchResult found = search_plans(space);
    ASSERT_EQ(found.best.empty(), all.empty()) << i;
    if (all.empty()) continue;
    EXPECT_NEAR(found.best.front().samples_per_s / all.front(), 1, kSearchRounding) << i;
    for (const Candidate& candidate : found.best) EXPECT_EQ(candidate.plan.virtual_stages, 1) << i;
    dropped += all.size() > found.best.size() ? 1 : 0;
  }
  EXPECT_GT(dropped, 100);
}

TEST(PlanSearch, RecomputesOnlyWhereThereIsNoRoomOtherwise) {
  RngStream rng(3);
  int recomputing = 0;
  for (int i = 0; i < 150; ++i) {
    SearchSpace space = test::made_up_space(rng);
    space.chunks.resize(1), space.batches.resize(1), space.schedules.resize(1);
    space.memory_limit = 300 + rng.below(2000);
    space.recompute = {Recompute::kOpen};
    expect_best_of(space, EveryPlan(space), concat("case ", i));
    const SearchResult found = search_plans(space);
    recomputing += !found.best.empty() && found.best.front().plan.recompute_any() ? 1 : 0;
  }
  EXPECT_GT(recomputing, 10);
}

// More cuts than are all tried at once: borders are moved first.
TEST(PlanSearch, FindsTheBestOfManyCuts) {
  RngStream rng(4);
  for (int i = 0; i < 60; ++i) {
    const bool slow_down = rng.below(3) == 0;
    const std::vector<std::string> names{"gpipe", "1f1b", "zb-h1"};
    SearchSpace space;
    space.costs_of = test::costs_by_slots(test::made_up_layers(rng, 14 + static_cast<int>(rng.below(4)), slow_down),
                                          test::made_up_overheads(rng, slow_down));
    space.most_slots = 8, space.devices = {4}, space.replicas = {1 + static_cast<int>(rng.below(2))};
    space.chunks = {8}, space.batches = {32}, space.schedules = {{names[rng.below(3)], 1, ""}};
    if (rng.below(2) == 0) space.memory_limit = 500 + rng.below(2000);
    expect_best_of(space, EveryPlan(space), concat("case ", i));
  }
}

// (m + p - 1) (a + s B / m), tried for every m.
TEST(FirstGuess, IsTheBestNumberOfChunksOfEqualStages) {
  for (const int devices : {2, 3, 8}) {
    for (const double a : {0.01, 0.5, 4.0}) {
      const double s = 0.25, samples = 64;
      const auto seconds = [&](int m) { return (m + devices - 1) * (a + s * samples / m); };
      int best = 1;
      for (int m = 2; m <= static_cast<int>(samples); ++m)
        if (seconds(m) < seconds(best)) best = m;
      EXPECT_NEAR(first_guess_chunks(devices, samples, {.a_s = a, .b_s = s}), best, 1) << devices << " " << a;
    }
  }
  EXPECT_EQ(first_guess_chunks(1, 64, {.a_s = 1, .b_s = 1}), 1) << "no pipeline";
  EXPECT_EQ(first_guess_chunks(4, 64, {.a_s = 0, .b_s = 1}), 64) << "micro-batches cost nothing of their own";
}

}  // namespace
}  // namespace sluice::tune
