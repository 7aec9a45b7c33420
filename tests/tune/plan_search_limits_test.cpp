// search_plans(): what holds for any space: more of it is no worse, its order does not matter, what is pinned stays;
// what is told of the plans that lost; the limit of time.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>

#include "core/clock.h"
#include "made_up_space.h"
#include "tune/plan_search.h"

namespace sluice::tune {
namespace {

double best_rate(const SearchResult& result) { return result.best.empty() ? 0 : result.best.front().samples_per_s; }

const Refusal* find_refusal(const SearchResult& result, const std::string& words) {
  const auto found = std::ranges::find_if(
      result.refusals, [&](const Refusal& refusal) { return refusal.why.find(words) != std::string::npos; });
  return found == result.refusals.end() ? nullptr : &*found;
}

// Layers of one second of forward and two of backward a sample, a byte of parameters each.
SearchSpace equal_layers(int layers) {
  SearchSpace space;
  const LayerCost layer{
      .forward = {.b_s = 1}, .input_gradient = {.b_s = 1}, .weight_gradient = {.b_s = 1}, .parameter_bytes = 1};
  space.costs_of = [=](const Plan&) { return SlotCosts{std::vector(layers, layer), {}}; };
  space.batches = {64};
  return space;
}

TEST(PlanSearchLimits, MoreSpaceIsNeverWorse) {
  RngStream rng(11);
  for (int i = 0; i < 60; ++i) {
    const SearchSpace all = test::made_up_space(rng);
    SearchSpace part = all;
    const auto shorten = [&](auto& list) { list.resize(1 + rng.below(list.size())); };
    shorten(part.devices), shorten(part.replicas), shorten(part.chunks), shorten(part.batches), shorten(part.schedules);
    EXPECT_GE(best_rate(search_plans(all)), best_rate(search_plans(part)) * (1 - 1e-8)) << "case " << i;
    part.memory_limit = 200 + rng.below(2000);
    SearchSpace open = part;
    part.recompute = {rng.below(2) == 0 ? Recompute::kNone : Recompute::kLayer};
    open.recompute = {Recompute::kNone, Recompute::kLayer, Recompute::kOpen};
    EXPECT_GE(best_rate(search_plans(open)), best_rate(search_plans(part)) * (1 - 1e-8)) << "case " << i;
  }
}

TEST(PlanSearchLimits, TheOrderOfListsDoesNotMatter) {
  RngStream rng(12);
  for (int i = 0; i < 60; ++i) {
    const SearchSpace space = test::made_up_space(rng);
    SearchSpace other = space;
    shuffle(other.devices, rng), shuffle(other.replicas, rng), shuffle(other.chunks, rng);
    shuffle(other.batches, rng), shuffle(other.schedules, rng);
    other.devices.push_back(other.devices.front()), other.schedules.push_back(other.schedules.front());
    const SearchResult a = search_plans(space), b = search_plans(other);
    ASSERT_EQ(a.best.size(), b.best.size());
    for (std::size_t k = 0; k < a.best.size(); ++k) EXPECT_EQ(a.best[k].plan, b.best[k].plan) << "case " << i;
    ASSERT_EQ(a.refusals.size(), b.refusals.size());
    for (std::size_t k = 0; k < a.refusals.size(); ++k) {
      EXPECT_EQ(a.refusals[k].why, b.refusals[k].why);
      EXPECT_EQ(a.refusals[k].count, b.refusals[k].count) << a.refusals[k].why;
    }
    EXPECT_EQ(a.tried, b.tried);
    std::size_t families = a.best.size();
    for (const Refusal& refusal : a.refusals) families += static_cast<std::size_t>(refusal.count);
    EXPECT_EQ(families, space.devices.size() * space.replicas.size() * space.chunks.size() * space.batches.size() *
                            space.schedules.size());
  }
}

TEST(PlanSearchLimits, WhatIsPinnedStays) {
  SearchSpace space = equal_layers(6);
  space.most_slots = 8;
  space.devices = {2}, space.replicas = {2}, space.chunks = {4}, space.schedules = {{"zb-h1", 1, ""}};
  space.partition = Partition{{1, 5}};
  const SearchResult found = search_plans(space);
  ASSERT_EQ(found.best.size(), 1U);
  EXPECT_EQ(found.best[0].plan, (Plan{.partition = {{1, 5}},
                                      .replicas = 2,
                                      .chunks = 4,
                                      .global_batch = 64,
                                      .schedule = "zb-h1",
                                      .recompute = {false, false}}));
  EXPECT_TRUE(found.is_proven);
  space.devices = {2, 3};
  const SearchResult both = search_plans(space);
  EXPECT_EQ(both.best.size(), 1U);
  EXPECT_NE(find_refusal(both, "the given partition has 2 stages, not 3"), nullptr);
}

TEST(PlanSearchLimits, AnOrderThatSomebodyWrote) {
  SearchSpace space = equal_layers(4);
  space.most_slots = 2;
  space.devices = {1, 2}, space.chunks = {2};
  space.schedules = {{"mine", 1, "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"}};
  const SearchResult found = search_plans(space);
  ASSERT_EQ(found.best.size(), 1U) << (found.refusals.empty() ? "" : found.refusals.front().why);
  EXPECT_EQ(found.best[0].plan.schedule, Plan::kFromFile);
  EXPECT_EQ(found.best[0].plan.partition, (Partition{{2, 2}}));
}

// Equal layers, no overheads: the most even cut, and of equally fast plans the one with fewer chunks, then slots.
TEST(PlanSearchLimits, OfEquallyFastPlansTheOneWithFewerChunks) {
  SearchSpace space = equal_layers(8);
  space.most_slots = 4;
  space.replicas = {1, 2, 4}, space.chunks = {1, 2, 4, 8};
  const SearchResult found = search_plans(space);
  ASSERT_EQ(found.best.size(), 10U);
  EXPECT_EQ(found.best[0].plan.replicas, 4);
  EXPECT_EQ(found.best[0].plan.chunks, 1);
  EXPECT_DOUBLE_EQ(found.best[0].samples_per_s, 64 / (16 * 8 * 3.0));
  for (std::size_t i = 1; i < found.best.size(); ++i)
    EXPECT_LE(found.best[i].samples_per_s, found.best[i - 1].samples_per_s * (1 + 1e-9));
}

TEST(PlanSearchLimits, RefusalsSayWhatIsMissing) {
  SearchSpace space = equal_layers(3);
  space.most_slots = 4;
  space.devices = {2, 4}, space.replicas = {1, 4}, space.chunks = {2, 8};
  space.schedules = {{"1f1b", 1, ""}, {"zb-v", 2, ""}, {"dualpipe-v", 2, ""}, {"1f1b", 2, ""}};
  space.least_micro_batch = 16;
  const SearchResult found = search_plans(space);
  const auto expect = [&](const std::string& sentence, std::int64_t count) {
    const Refusal* refusal = find_refusal(found, sentence);
    ASSERT_NE(refusal, nullptr) << sentence;
    EXPECT_EQ(refusal->why, sentence);
    EXPECT_EQ(refusal->count, count) << sentence;
    EXPECT_TRUE(refusal->plan.partition.layers_per_stage.empty());
  };
  expect("4 replicas of 2 devices need 8 slots, but there are 4", 2 * 2 * 4);
  expect("schedule zb-v needs 2 virtual stages on each of 2 devices of at least one layer each: 3 layers are too few",
         2 * 2);
  expect("4 stages need at least one layer each: 3 layers are too few", 2);
  expect("micro-batches of 8 samples are below the least of 16", 1);
}

// One layer has nearly all the bytes: whichever stage has it is named, with what it needs.
TEST(PlanSearchLimits, TheStageThatHasNoRoomIsNamed) {
  for (const int heavy : {0, 2, 3}) {
    SearchSpace space = equal_layers(4);
    space.costs_of = [=, costs = space.costs_of](const Plan& uncut) {
      SlotCosts heavier = costs(uncut);
      heavier.layers[heavy].parameter_bytes = std::uint64_t{31} << 30U;
      return heavier;
    };
    space.most_slots = 4, space.devices = {4}, space.chunks = {2, 4};
    space.memory_limit = std::uint64_t{24} << 30U;
    const SearchResult found = search_plans(space);
    EXPECT_TRUE(found.best.empty());
    EXPECT_TRUE(found.is_proven);
    ASSERT_EQ(found.refusals.size(), 1U);
    EXPECT_EQ(found.refusals[0].why, concat("stage ", heavy, " needs 31.0 GiB of 24.0 GiB"));
    EXPECT_EQ(found.refusals[0].count, 2);
    space.memory_limit = std::uint64_t{32} << 30U;
    EXPECT_EQ(search_plans(space).best.size(), 2U);
  }
}

TEST(PlanSearchLimits, TheDeviceOfSeveralStagesIsNamed) {
  SearchSpace space = equal_layers(4);
  space.most_slots = 2, space.devices = {2}, space.chunks = {4}, space.memory_limit = 1;
  space.schedules = {{"zb-v", 2, ""}};
  const SearchResult found = search_plans(space);
  ASSERT_EQ(found.refusals.size(), 1U);
  EXPECT_EQ(found.refusals[0].why, "device 0 (stages 0, 3) needs 2 B of 1 B");
}

SearchSpace large_space(RngStream& rng) {
  SearchSpace space;
  space.costs_of = test::costs_by_slots(test::made_up_layers(rng, 40, false), {});
  space.most_slots = 8;
  space.devices = {1, 2, 4, 8}, space.replicas = {1, 2, 4, 8}, space.chunks = {4, 8, 16, 32, 64};
  space.schedules = {{"gpipe", 1, ""}, {"1f1b", 1, ""}, {"zb-h1", 1, ""}, {"interleaved", 2, ""}, {"zb-v", 2, ""}};
  space.batches = {512};
  return space;
}

// Not only the best ten have room: the others are too slow, which is another reason.
TEST(PlanSearchLimits, WhatIsTooSlowIsNotSaidToHaveNoRoom) {
  RngStream rng(15);
  SearchSpace space = large_space(rng);
  space.costs_of = test::costs_by_slots(test::made_up_layers(rng, 8, false), {});
  space.memory_limit = std::uint64_t{1} << 40U;
  space.recompute = {Recompute::kOpen};
  const SearchResult found = search_plans(space);
  EXPECT_EQ(found.best.size(), 10U);
  EXPECT_TRUE(found.is_proven);
  EXPECT_NE(find_refusal(found, "less than the tenth best plan's"), nullptr);
  EXPECT_EQ(find_refusal(found, "TiB"), nullptr);
}

// A clock that goes on by a millisecond each time somebody looks.
TEST(PlanSearchLimits, TheLimitOfTimeIsObeyed) {
  RngStream rng(13);
  const SearchSpace space = large_space(rng);
  double last = 0;
  for (const double seconds : {0.0, 0.1, 1.0, 4.0}) {
    double now = 100;
    const SearchResult found = search_plans(space, {seconds, [&] { return now += 0.001; }});
    EXPECT_LE(now, 100 + seconds + 0.05) << "it looks at the clock a few times more";
    EXPECT_EQ(found.best.empty(), seconds == 0);
    EXPECT_GE(best_rate(found), last * (1 - 1e-9)) << "more time is not worse";
    last = best_rate(found);
    EXPECT_EQ(find_refusal(found, "no time was left to find a cut of it") != nullptr, seconds < 0.2);
    EXPECT_TRUE(seconds > 0 || !found.is_proven);
  }
}

// No bound on these times: machines differ.
TEST(PlanSearchLimits, TimesToReadOnly) {
  RngStream rng(14);
  const auto seconds_now = [] { return static_cast<double>(now_ns()) * 1e-9; };
  const std::vector<LayerCost> layers = test::made_up_layers(rng, 40, true);
  for (const int contenders : {1, 8}) {
    const Plan plan{.partition = {std::vector<int>(8, 5)}, .chunks = 64, .global_batch = 512};
    const pipeline::Schedule schedule = pipeline::make_train_schedule(plan, plan.chunks);
    const StepOverheads overheads{
        .all_reduce = LinkCost{.latency_s = 0.1, .bytes_per_s = 100}, .bucket_bytes = 100, .contenders = contenders};
    const StepCosts costs = step_costs(layers, plan.partition, {}, 8, overheads);
    const auto milliseconds = [&](const auto& what) {
      constexpr int kTimes = 50;
      const double start = seconds_now();
      for (int i = 0; i < kTimes; ++i) what();
      return (seconds_now() - start) / kTimes * 1e3;
    };
    const pipeline::Simulator simulator(schedule);
    std::printf(
        "p=8, m=64, %d contenders: %.3f ms of a plan with validation, %.3f ms of its schedule, %.3f ms of its "
        "simulator, %.3f ms for the costs\n",
        contenders, milliseconds([&] { (void)predict_step(plan, layers, 512, overheads); }),
        milliseconds([&] { (void)predict_step(schedule, costs); }),
        milliseconds([&] { (void)predict_step(simulator, costs); }),
        milliseconds([&] { (void)step_costs(layers, plan.partition, {}, 8, overheads); }));
  }
  SearchSpace space = large_space(rng);
  for (const double limit : {0.5, 2.0, 2.1}) {
    if (limit > 2) space.memory_limit = 40'000, space.recompute = {Recompute::kOpen};
    const double start = seconds_now();
    const SearchResult found = search_plans(space, {limit, seconds_now});
    std::printf("40 layers, up to 8 places, limit %.1f s: %.2f s, %lld tried, %lld pruned, %s, %.4f samples/s\n", limit,
                seconds_now() - start, static_cast<long long>(found.tried), static_cast<long long>(found.pruned),
                found.is_proven ? "proven" : "not proven", best_rate(found));
    for (const Refusal& refusal : found.refusals)
      std::printf("  %lld: %s\n", static_cast<long long>(refusal.count), refusal.why.c_str());
  }
}

}  // namespace
}  // namespace sluice::tune
