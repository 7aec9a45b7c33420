#include "tune/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::tune {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

AdviceInput empty_step(int chunks = 4) {
  AdviceInput input;
  input.step = 1;
  input.plan.chunks = chunks;
  return input;
}

// A third of it forward.
DeviceSeconds computing(double seconds, int device = 0) {
  return {.device = device, .forward = seconds / 3, .backward = seconds * 2 / 3};
}

// One replica whose stages, of three layers each, compute these seconds of a step of one second, in four chunks.
AdviceInput pipeline(const std::vector<double>& compute, int chunks = 4) {
  AdviceInput input = empty_step(chunks);
  for (const double seconds : compute) {
    input.devices.push_back(computing(seconds, static_cast<int>(input.devices.size())));
    input.plan.partition.layers_per_stage.push_back(3);
  }
  input.replica_samples = 64;
  return input;
}

// Of layers that take these seconds of a step of 64 samples, a third of it forward.
std::vector<LayerCost> layers_of(const std::vector<double>& seconds) {
  std::vector<LayerCost> layers;
  for (const double s : seconds)
    layers.push_back({.forward = {.b_s = s / 3 / 64},
                      .input_gradient = {.b_s = s / 2 / 64},
                      .weight_gradient = {.b_s = s / 6 / 64}});
  return layers;
}

double gain_of(const std::vector<Advice>& advice, const std::string& words) {
  double gain = 0;
  for (const Advice& one : advice) {
    if (one.sentence.find(words) != std::string::npos) gain += one.gain;
  }
  return gain;
}

TEST(Advise, SaysNothingAboutABalancedStep) {
  EXPECT_THAT(advise(pipeline({0.9, 0.9})), IsEmpty());
  AdviceInput input = pipeline({0.45, 0.45, 0.46});
  for (DeviceSeconds& stage : input.devices) {
    stage.load = stage.skew = stage.allreduce = stage.fill = stage.other = 0.02;
  }
  input.layers = layers_of({0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.16, 0.15, 0.15});
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
  input.layers = layers_of({0.1, 0.1, 0.15, 0.25, 0.2});
  input.plan.partition = {{2, 3}};
  // Layer 2 to stage 0: (0.35 + 0.45 + 3 * 0.45) / 4 = 0.5375, 0.1125 less than 0.65.
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_NEAR(advice[0].gain, 0.1125, 1e-12);
  EXPECT_THAT(advice[0].sentence, AllOf(HasSubstr("stage 1 is the bottleneck"),
                                        HasSubstr("moving layer 2 to stage 0 (pipeline.partition) predicts -11 %")));
}

TEST(Bottleneck, NeverEmptiesAStageNorMovesWhatMakesItWorse) {
  AdviceInput input = pipeline({0.2, 0.6});
  input.layers = layers_of({0.2, 0.6});
  input.plan.partition = {{1, 1}};
  EXPECT_THAT(advise(input), IsEmpty()) << "its only layer";
  input.layers = layers_of({0.2, 0.55, 0.05});
  input.plan.partition = {{1, 2}};
  EXPECT_THAT(advise(input), IsEmpty()) << "the layer makes the neighbour as slow";
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

// What the best move of one layer to a stage beside it saves.
double best_saving(const std::vector<double>& layers, const Cut& cut, int chunks) {
  double best = 0;
  for (std::size_t layer = 0; layer < cut.size(); ++layer) {
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
    input.layers = layers_of(layers);
    const double best = best_saving(layers, cut, chunks);
    EXPECT_NEAR(gain_of(advise(input), "bottleneck"), best >= kWorthwhile ? best : 0.0, 1e-9) << "round " << round;
  }
}

TEST(Chunks, TwiceAsManyHalveFillAndDrain) {
  AdviceInput input = pipeline({0.7, 0.7});
  for (DeviceSeconds& stage : input.devices) stage.fill = stage.drain = 0.1;
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_NEAR(advice[0].gain, 0.0875, 1e-12);  // (1.4 + 3 * 0.7) / 4 - (1.4 + 7 * 0.7) / 8, less than half the bubble
  EXPECT_EQ(
      advice[0].sentence,
      "the pipeline fills and drains for 200.0 ms of the 1000.0 ms step (20 %); pipeline.chunks = 8 instead of 4 can "
      "save up to 8.8 %");
  input.replica_samples = 7;
  EXPECT_THAT(advise(input), IsEmpty()) << "there are not 8 samples to cut";
}

// Stage 0 waits for stage 1 most of the step, and would with any number of chunks.
TEST(Chunks, MoreDoNotHelpWhereOneStageIsSlow) {
  AdviceInput input = pipeline({0.1, 0.8});
  input.plan.partition = {{1, 1}};
  input.devices[0].fill = input.devices[0].drain = 0.4;
  EXPECT_NEAR(gain_of(advise(input), "pipeline.chunks"), 0, 1e-12);  // 0.9 + 3 * 0.8 over 4 - 0.9 + 7 * 0.8 over 8
}

TEST(Chunks, NothingIsSaidThatWasMeasuredOrThatFixedCostsMayEatUp) {
  AdviceInput input = pipeline({0.7, 0.7});
  for (DeviceSeconds& stage : input.devices) stage.fill = stage.drain = 0.1;
  input.chunks_are_measured = true;
  EXPECT_THAT(advise(input), IsEmpty());
  input.chunks_are_measured = false;
  input.step = 0.01;
  for (DeviceSeconds& stage : input.devices)
    stage = {.device = stage.device, .forward = 0.002, .backward = 0.005, .fill = 0.001, .drain = 0.001};
  EXPECT_THAT(advise(input), IsEmpty()) << "micro-batches of 2 ms a stage";
}

// A pipeline of equal stages of a layer each that follows T(m) = (m + p - 1) (a + s B / m) exactly.
AdviceInput equal_stages(int stages, int chunks, double samples, const AffineCost& cost) {
  const double one = cost.at(samples / chunks);
  AdviceInput input = pipeline(std::vector<double>(stages, one * chunks), chunks);
  input.step = one * (chunks + stages - 1);
  input.replica_samples = samples;
  input.plan.partition.layers_per_stage.assign(stages, 1);
  input.layers.assign(stages, {.input_gradient = cost});
  for (DeviceSeconds& stage : input.devices) {
    stage.fill = one * stage.device;
    stage.drain = one * (stages - 1 - stage.device);
  }
  return input;
}

TEST(Chunks, PredictWhatTheModelOfAStepSays) {
  // T(4) = 7 (0.001 + 64 * 0.0001 / 4) = 18.2 ms, T(8) = 11 (0.001 + 0.0008) = 19.8 ms: more do not pay.
  EXPECT_EQ(gain_of(advise(equal_stages(4, 4, 64, {0.001, 0.0001})), "pipeline.chunks = 8"), 0);
  // T(2) = 5 (0.001 + 0.0032) = 21 ms, T(4) = 18.2 ms.
  const auto more = advise(equal_stages(4, 2, 64, {0.001, 0.0001}));
  EXPECT_NEAR(gain_of(more, "pipeline.chunks = 4 instead of 2 predicts -13 %"), (21.0 - 18.2) / 21.0, 1e-9);
  // m* = sqrt(3 * 6.4 / 1) = 4.4: T(16) = 19 * 1.4 = 26.6 ms, T(4) = 18.2 ms.
  const auto fewer = advise(equal_stages(4, 16, 64, {0.001, 0.0001}));
  EXPECT_NEAR(gain_of(fewer, "pipeline.chunks = 4 predicts -32 %"), (26.6 - 18.2) / 26.6, 1e-9);
}

TEST(Chunks, OfAnOrderAreNoSetting) {
  AdviceInput input = equal_stages(4, 16, 64, {0.001, 0.0001});
  input.plan.order = pipeline::draw(pipeline::make_train_schedule(input.plan, input.plan.chunks));
  input.plan.schedule = Plan::kOrder;
  EXPECT_THAT(advise(input), IsEmpty());
  for (DeviceSeconds& device : input.devices) device.other = 0.2 * input.step;
  EXPECT_GT(gain_of(advise(input), "half the 16 micro-batches of pipeline.order can save"), 0);
}

// The order of the schedule that ran decides: V stages a device divide the bubble, so that half the chunks cost less.
TEST(Chunks, AreEstimatedUnderTheScheduleThatRan) {
  const auto gain = [](const std::string& schedule, int virtual_stages) {
    AdviceInput input = pipeline(std::vector<double>(2, 0.7), 4);
    input.plan.schedule = schedule;
    input.plan.virtual_stages = virtual_stages;
    input.plan.partition.layers_per_stage.assign(2 * virtual_stages, 3);
    for (DeviceSeconds& device : input.devices) device.fill = device.drain = 0.3;
    return gain_of(advise(input), "pipeline.chunks = 8");
  };
  // (m + (p - 1) / V) t with t = 0.7 / m.
  EXPECT_NEAR(gain("1f1b", 1), 0.7 / 4 - 0.7 / 8, 1e-12);
  EXPECT_NEAR(gain("interleaved", 2), (0.7 / 4 - 0.7 / 8) / 2, 1e-12);
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

TEST(Chunks, FewerAreTheBestOfAllNumbers) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (const double overhead : {0.0005, 0.002, 0.01}) {
      const AdviceInput input = equal_stages(stages, 32, 64, {overhead, 0.0001});
      const auto step = [&](int m) { return (m + stages - 1) * (overhead + 0.0001 * 64 / m); };
      double best = step(32);
      for (int m = 1; m <= 32; ++m) best = std::min(best, step(m));
      EXPECT_NEAR(gain_of(advise(input), "micro-batches costs"), (step(32) - best) / step(32), 1e-9)
          << stages << " stages, " << overhead;
    }
  }
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
