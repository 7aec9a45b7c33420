#include "tune/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <regex>

#include "tune/advised_step.h"

namespace sluice::tune {
namespace {

using test::empty_step;
using test::gain_of;
using test::know_costs;
using test::layers_of;
using test::pipeline;
using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST(Advise, SaysNothingAboutABalancedStep) {
  EXPECT_THAT(advise(pipeline({0.9, 0.9})), IsEmpty());
  AdviceInput input = pipeline({0.45, 0.45, 0.46});
  for (DeviceSeconds& stage : input.devices) {
    stage.load = stage.skew = stage.allreduce = stage.fill = stage.other = 0.02;
  }
  know_costs(input, layers_of({0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.16, 0.15, 0.15}));
  EXPECT_THAT(advise(input), IsEmpty());
}

TEST(Advise, KeepsSilentOnNothing) {
  EXPECT_THAT(advise({}), IsEmpty());
  EXPECT_THAT(advise(empty_step()), IsEmpty());
  AdviceInput no_step = pipeline({1, 2});
  no_step.step = 0;
  EXPECT_THAT(advise(no_step), IsEmpty());
}

TEST(Bottleneck, NamesTheStageAndTheBoundOfPerfectBalance) {
  // Now (0.2 + 0.6 + 3 * 0.6) / 4 = 0.65, balanced (0.8 + 3 * 0.4) / 4 = 0.5.
  const auto advice = advise(pipeline({0.2, 0.6}));
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_NEAR(advice[0].gain, 0.15, 1e-12);
  EXPECT_EQ(advice[0].sentence,
            "stage 1 is the bottleneck: it computes 600.0 ms of the 1000.0 ms step, 50 % more than the mean of the "
            "stages; moving layers to its neighbours (pipeline.partition) can save up to 15 % of it");
}

TEST(Bottleneck, IsSilentWhereNoLayerCanMove) {
  AdviceInput input = pipeline({0.2, 0.6});
  input.plan.partition = {{3, 1}};
  EXPECT_THAT(advise(input), IsEmpty()) << "the slow stage has one layer";
  input.plan.partition = {{3, 2}};
  EXPECT_THAT(advise(input), SizeIs(1));
  input.partition_is_measured = true;
  EXPECT_THAT(advise(input), IsEmpty()) << "the layers' costs gave this cut";
}

TEST(Bottleneck, TakesTheMeanOverReplicas) {
  AdviceInput input = pipeline({0.1, 0.5});
  for (const DeviceSeconds& stage : pipeline({0.3, 0.7}).devices) {
    input.devices.push_back(stage);
    input.devices.back().replica = 1;
  }
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_NEAR(advice[0].gain, 0.15, 1e-12) << "as one replica of 0.2 and 0.6";
}

TEST(Bottleneck, PredictsTheMoveOfALayer) {
  AdviceInput input = pipeline({0.2, 0.6});
  know_costs(input, layers_of({0.1, 0.1, 0.15, 0.25, 0.2}));
  input.plan.partition = {{2, 3}};
  // Layer 2 to stage 0: (0.35 + 0.45 + 3 * 0.45) / 4 = 0.5375, 0.1125 less than 0.65.
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_NEAR(advice[0].gain, 0.1125 / 0.65, 1e-12);
  EXPECT_THAT(advice[0].sentence, AllOf(HasSubstr("stage 1 is the bottleneck"),
                                        HasSubstr("moving layer 2 to stage 0 (pipeline.partition) predicts -17 %")));
}

TEST(Bottleneck, NeverEmptiesAStageNorMovesWhatMakesItWorse) {
  AdviceInput input = pipeline({0.2, 0.6});
  know_costs(input, layers_of({0.2, 0.6}));
  input.plan.partition = {{1, 1}};
  EXPECT_THAT(advise(input), IsEmpty()) << "its only layer";
  know_costs(input, layers_of({0.2, 0.55, 0.05}));
  input.plan.partition = {{1, 2}};
  EXPECT_THAT(advise(input), IsEmpty()) << "the layer makes the neighbour as slow";
}

// The costs hold already what devices take from each other's caches. Advice that scales the costs by measured times
// counts that twice.
TEST(Bottleneck, DevicesThatWereSlowedDownAreNotSlowedDownTwice) {
  for (const double slowdown : {1.0, 1.5, 4.5}) {
    std::vector<LayerCost> layers = layers_of({0.1, 0.1, 0.15, 0.25, 0.2});
    for (LayerCost& layer : layers) layer.slowdown = slowdown;
    const StepOverheads overheads{.contenders = 2};
    AdviceInput input = pipeline({0.2 * slowdown, 0.6 * slowdown});
    input.plan.partition = {{2, 3}};
    know_costs(input, layers, overheads);
    Plan moved = input.plan;
    moved.partition = {{3, 2}};
    const double now = predict_step(input.plan, layers, 64, overheads).seconds;
    const double then = predict_step(moved, layers, 64, overheads).seconds;
    EXPECT_NEAR(gain_of(advise(input), "moving layer 2 to stage 0"),
                now - then >= kWorthwhile * now ? 1 - then / now : 0, 1e-12)
        << slowdown;
  }
}

TEST(Bottleneck, IsADeviceWhereAnOrderGivesItAStageOfAnotherNumber) {
  AdviceInput input = pipeline({0.2, 0.6}, 2);
  input.plan.schedule = Plan::kFromFile;
  input.plan.schedule_text = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n";
  ASSERT_THAT(advise(input), SizeIs(1));
  EXPECT_THAT(advise(input)[0].sentence, HasSubstr("stage 1 is the bottleneck"));
  input.plan.schedule_text = "1F0 1B0 1F1 1B1\n0F0 0F1 0B0 0B1\n";  // each device has the other's stage
  input.devices = pipeline({0.6, 0.2}).devices;
  ASSERT_THAT(advise(input), SizeIs(1));
  EXPECT_THAT(advise(input)[0].sentence, HasSubstr("device 0 is the bottleneck"));
  know_costs(input, layers_of({0.1, 0.1, 0.2, 0.2, 0.2}));
  input.plan.partition = {{2, 3}};
  EXPECT_THAT(advise(input).at(0).sentence, HasSubstr("moving layer 2 to stage 0")) << "that is on device 1";
}

TEST(Bottleneck, NoLayerMovesFromOneStageOfADeviceToAnotherOfItsStages) {
  AdviceInput input = pipeline({1.0, 0.9}, 2);
  input.step = 2;
  input.plan.schedule = Plan::kFromFile;
  input.plan.virtual_stages = 2;
  // Device 1 waits for both forwards of stage 0: a shorter stage 0 would let it begin sooner.
  input.plan.schedule_text = "0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1\n2F0 3F0 2F1 3F1 3B0 2B0 3B1 2B1\n";
  know_costs(input, layers_of({0.1, 0.3, 0.1, 0.5, 0.2, 0.2, 0.25, 0.25}));  // 0.5 is too much for device 1
  input.plan.partition = {{2, 2, 2, 2}};
  EXPECT_THAT(advise(input), Each(Field(&Advice::sentence, Not(HasSubstr("moving layer")))));
}

// Under any schedule, and whichever device has computed longest: also one of which another move would save more.
TEST(Bottleneck, MovesALayerOfItsDeviceToAnotherDevice) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> cost(0.01, 0.2), any_speed(0.3, 3), like_speed(0.9, 1.1);
  const std::regex move("(?:stage|device) (\\d+) is the bottleneck.*moving layer (\\d+) to stage (\\d+)");
  struct Case {
    std::string schedule;
    int virtual_stages;
    std::vector<int> owners;  // [stage]
  };
  for (const auto& [schedule, virtual_stages, owners] :
       {Case{"1f1b", 1, {0, 1, 2}}, Case{"zb-v", 2, {0, 1, 1, 0}}, Case{"interleaved", 2, {0, 1, 0, 1}}}) {
    int moves = 0;
    for (int round = 0; round < 200; ++round) {
      AdviceInput input = pipeline(std::vector<double>(1 + std::ranges::max(owners)));
      input.plan.schedule = schedule;
      input.plan.virtual_stages = virtual_stages;
      input.plan.partition.layers_per_stage.assign(owners.size(), 3);
      std::vector<double> seconds, slowness;
      for (std::size_t d = 0; d < input.devices.size(); ++d)
        slowness.push_back(round % 2 == 0 ? any_speed(random) : like_speed(random));
      for (std::size_t layer = 0; layer < 3 * owners.size(); ++layer) {
        const int device = owners[layer / 3];
        seconds.push_back(cost(random));
        input.devices[device].forward += seconds.back() / 3 * slowness[device];
        input.devices[device].backward += seconds.back() * 2 / 3 * slowness[device];
      }
      know_costs(input, layers_of(seconds));
      for (const Advice& advice : advise(input)) {
        std::smatch found;
        if (!std::regex_search(advice.sentence, found, move)) continue;
        ++moves;
        EXPECT_EQ(owners[std::stoi(found[2]) / 3], std::stoi(found[1])) << schedule << ": " << advice.sentence;
        EXPECT_NE(owners[std::stoi(found[3])], std::stoi(found[1])) << schedule << ": " << advice.sentence;
      }
    }
    EXPECT_GT(moves, 10) << schedule;
  }
}

// Which stage each layer is in, from 0.
using Cut = std::vector<int>;

// The end of the last micro-batch, each sent through every stage one by one: what GPipe takes for forwards, and the
// other way round for backwards.
double simulated(const std::vector<double>& layers, const Cut& cut, int chunks) {
  std::vector<double> stages(static_cast<std::size_t>(cut.back()) + 1), free(stages.size());
  for (std::size_t i = 0; i < cut.size(); ++i) stages[cut[i]] += layers[i] / chunks;
  for (int m = 0; m < chunks; ++m) {
    double ready = 0;
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
      ready = free[stage] = std::max(ready, free[stage]) + stages[stage];
  }
  return free.back();
}

// What the best move of one layer of the slowest stage to a stage beside it saves.
double best_saving(const std::vector<double>& layers, const Cut& cut, int chunks) {
  std::vector<double> stages(static_cast<std::size_t>(cut.back()) + 1);
  for (std::size_t i = 0; i < cut.size(); ++i) stages[cut[i]] += layers[i];
  const auto slowest = std::ranges::max_element(stages) - stages.begin();
  double best = 0;
  for (std::size_t layer = 0; layer < cut.size(); ++layer) {
    if (cut[layer] != slowest) continue;
    for (const int step : {-1, 1}) {
      Cut moved = cut;
      moved[layer] += step;
      if (!std::ranges::is_sorted(moved) || moved.front() != 0 || moved.back() != cut.back()) continue;
      if (std::ranges::count(moved, cut[layer]) == 0) continue;  // its stage would be empty
      best = std::max(best, simulated(layers, cut, chunks) - simulated(layers, moved, chunks));
    }
  }
  return best;
}

TEST(Bottleneck, EqualsBruteForceOverAllMoves) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> cost(0.01, 0.2);
  for (int round = 0; round < 300; ++round) {
    const int stages = 2 + round % 4, chunks = 1 + round % 7;
    AdviceInput input = pipeline(std::vector<double>(stages), chunks);
    input.plan.schedule = "gpipe";
    Cut cut;
    std::vector<double> layers;
    for (int stage = 0; stage < stages; ++stage) {
      int& count = input.plan.partition.layers_per_stage[stage];
      count = 1 + static_cast<int>(random() % 3);
      for (int i = 0; i < count; ++i) {
        cut.push_back(stage);
        layers.push_back(cost(random));
        input.devices[stage].forward += layers.back() / 3;
        input.devices[stage].backward += layers.back() * 2 / 3;
      }
    }
    know_costs(input, layers_of(layers));
    const double best = best_saving(layers, cut, chunks) / simulated(layers, cut, chunks);
    EXPECT_NEAR(gain_of(advise(input), "bottleneck"), best >= kWorthwhile ? best : 0.0, 1e-9) << "round " << round;
  }
}

TEST(Bottleneck, IsADeviceWhereDevicesHaveSeveralStages) {
  AdviceInput input = pipeline({0.2, 0.6});
  input.plan.schedule = "interleaved";
  input.plan.virtual_stages = 2;
  input.plan.partition = {{1, 1, 1, 1}};
  EXPECT_THAT(advise(input), IsEmpty()) << "no layer to spare";
  input.plan.partition = {{1, 1, 1, 2}};
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_THAT(advice[0].sentence, AllOf(HasSubstr("device 1 is the bottleneck"), HasSubstr("the mean of the devices")));
}

TEST(Load, IsGivenWithTheWorkersThereAre) {
  AdviceInput input = pipeline({0.8});
  input.devices[0].load = 0.12;
  input.data_workers = 2;
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_EQ(advice[0].sentence,
            "the step waits 120.0 ms of 1000.0 ms (12 %) for its data; more data.workers (now 2) can save up to that");
}

TEST(Load, MoreOfItNeverLowersItsNumber) {
  double last = 0;
  for (double load = 0; load < 2; load += 0.01) {
    AdviceInput input = pipeline({0.5, 0.5});
    for (DeviceSeconds& stage : input.devices) stage.load = load;
    input.step = 0.7 + load;
    const double gain = gain_of(advise(input), "data.workers");
    EXPECT_GE(gain, last) << load;
    last = gain;
  }
  EXPECT_GT(last, 0.7);
}

TEST(Communication, SaysBytesAndHowFastTheyWent) {
  AdviceInput input = pipeline({0.6});
  input.devices[0].allreduce = 0.3;
  input.sync_bytes = 64.0 * 1024 * 1024;
  input.allreduce = 0.5;
  input.network_bytes_per_s = 100.0 * 1024 * 1024;
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_NEAR(advice[0].gain, 0.15, 1e-12);
  EXPECT_EQ(
      advice[0].sentence,
      "the replicas' all-reduce takes 300.0 ms of 1000.0 ms (30 %) that no compute hides, 64.0 MiB a step at 128.0 "
      "MiB/s, network 100.0 MiB/s: twice the train.global_batch synchronises half as often and can save up to 15 % of "
      "the "
      "time per sample");
}

TEST(Skew, NamesTheReplicaThatOthersWaitFor) {
  AdviceInput input = empty_step();
  for (int replica = 0; replica < 3; ++replica)
    input.devices.push_back({.replica = replica, .forward = 0.2, .backward = 0.3, .skew = replica == 1 ? 0.0 : 0.08});
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_NEAR(advice[0].gain, 0.08, 1e-12);
  EXPECT_THAT(advice[0].sentence, HasSubstr("replica 1 is the slowest: the others wait 80.0 ms of the 1000.0 ms step"));
}

TEST(Skew, NobodyIsTheSlowestWhereAllWaitInTurn) {
  AdviceInput input = empty_step();
  for (int replica = 0; replica < 2; ++replica)
    input.devices.push_back({.replica = replica, .forward = 0.2, .backward = 0.3, .skew = 0.1});
  EXPECT_THAT(advise(input), IsEmpty());
  input.late_rank = LateRank{.rank = 3, .late = 0.12};
  EXPECT_NEAR(gain_of(advise(input), "rank 3 is the slowest: the others wait 120.0 ms"), 0.12, 1e-12);
}

// More than half of what the others wait is taking turns; less is being late.
TEST(Skew, WhoWaitsLittleItselfIsTheSlowest) {
  const auto gain_where_one_waits = [](double skew) {
    AdviceInput input = empty_step();
    for (const double wait : {0.2, skew}) {
      const int replica = static_cast<int>(input.devices.size());
      input.devices.push_back({.replica = replica, .forward = 0.2, .backward = 0.3, .skew = wait});
    }
    return gain_of(advise(input), "replica 1 is the slowest");
  };
  EXPECT_NEAR(gain_where_one_waits(0.09), 0.11, 1e-12);
  EXPECT_EQ(gain_where_one_waits(0.11), 0);
}

TEST(Idle, AsksForLargerKernelsAndDoesNotContradictTheChunks) {
  AdviceInput input = pipeline({0.5, 0.5});
  for (DeviceSeconds& stage : input.devices) stage.other = 0.2;
  EXPECT_NEAR(gain_of(advise(input), "half the 4 pipeline.chunks"), 0.1, 1e-12);
  input.chunks_are_measured = true;
  EXPECT_EQ(gain_of(advise(input), "half the"), 0) << "other numbers were tried and took longer";
  EXPECT_NEAR(gain_of(advise(input), "twice the train.global_batch can save"), 0.1, 1e-12);
  input.chunks_are_measured = false;
  for (DeviceSeconds& stage : input.devices) stage.fill = stage.drain = 0.1;
  const auto advice = advise(input);
  EXPECT_GT(gain_of(advice, "pipeline.chunks = 8"), 0);
  EXPECT_EQ(gain_of(advice, "half the"), 0);
  EXPECT_NEAR(gain_of(advice, "twice the train.global_batch can save"), 0.1, 1e-12);
}

TEST(Advise, PutsTheMostValuableFirst) {
  AdviceInput input = pipeline({0.2, 0.6});  // 0.15
  for (DeviceSeconds& stage : input.devices) {
    stage.load = 0.05;
    stage.skew = 0.3;
  }
  input.late_rank = LateRank{.rank = 1, .late = 0.3};
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(3));
  EXPECT_THAT(advice[0].sentence, HasSubstr("rank 1 is the slowest"));
  EXPECT_THAT(advice[1].sentence, HasSubstr("bottleneck"));
  EXPECT_THAT(advice[2].sentence, HasSubstr("data.workers"));
  EXPECT_TRUE(std::ranges::is_sorted(advice, std::greater{}, &Advice::gain));
}

}  // namespace
}  // namespace sluice::tune
