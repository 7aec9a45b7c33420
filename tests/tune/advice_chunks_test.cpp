// Advice on the number of chunks, and on the size of buckets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/concat.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/advised_step.h"

namespace sluice::tune {
namespace {

using test::gain_of;
using test::know_costs;
using test::layers_of;
using test::pipeline;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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
AdviceInput equal_stages(int stages, int chunks, double samples, const SizedCost& cost) {
  const double one = cost.at(samples / chunks);
  AdviceInput input = pipeline(std::vector<double>(stages, one * chunks), chunks);
  input.step = one * (chunks + stages - 1);
  input.replica_samples = samples;
  input.plan.partition.layers_per_stage.assign(stages, 1);
  know_costs(input, std::vector(stages, LayerCost{.input_gradient = cost}));
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
  input.plan.schedule_text = pipeline::draw(pipeline::make_train_schedule(input.plan, input.plan.chunks));
  input.plan.schedule = Plan::kFromFile;
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

// Two devices that slow each other down to nearly a third, as on a busy machine. One micro-batch lets them compute one
// after the other, so that the slow-down is gone: once, and not once more for the times that were measured with it.
TEST(Chunks, OfDevicesThatSlowEachOtherDownArePredictedAsASimulationPredictsThem) {
  AdviceInput input = equal_stages(2, 16, 64, {0.001, 0.0001});
  std::vector<LayerCost> layers = input.costs.layers;
  for (LayerCost& layer : layers) layer.slowdown = 4.5;
  const StepOverheads overheads{.contenders = 2};
  for (DeviceSeconds& device : input.devices) device.forward *= 4.5, device.backward *= 4.5;
  know_costs(input, layers, overheads);
  const auto seconds = [&](int chunks) {
    Plan plan = input.plan;
    plan.chunks = chunks;
    return predict_step(plan, layers, 64, overheads).seconds;
  };
  double best = seconds(16);
  for (int chunks = 1; chunks < 16; ++chunks) best = std::min(best, seconds(chunks));
  EXPECT_LT(1 - best / seconds(16), 0.9) << "a gain of nearly all of the step is none";
  EXPECT_NEAR(gain_of(advise(input), "micro-batches costs"), 1 - best / seconds(16), 1e-12);
}

TEST(Chunks, MoreSaveWhatIsPredictedIfTheStepsHaveABubble) {
  AdviceInput input = equal_stages(4, 2, 64, {0.0005, 0.0001});
  for (DeviceSeconds& device : input.devices) device.fill /= 4, device.drain /= 4;
  // T(2) = 5 (0.0005 + 0.0032) = 18.5 ms, T(4) = 7 (0.0005 + 0.0016) = 14.7 ms.
  EXPECT_NEAR(gain_of(advise(input), "pipeline.chunks = 4"), 1 - 14.7 / 18.5, 1e-9);
  for (DeviceSeconds& device : input.devices) device.fill = device.drain = 0;
  EXPECT_THAT(advise(input), IsEmpty()) << "the pipeline neither fills nor drains";
}

TEST(Chunks, FewerSayWhatMicroBatchesCostInComputeAndOnTheirWay) {
  AdviceInput input = equal_stages(2, 16, 64, {0.001, 0.0001});
  EXPECT_GT(gain_of(advise(input), "each of the 16 micro-batches costs the slowest device 1.0 ms whatever its size;"),
            0);
  know_costs(input, input.costs.layers, {.borders = {{.latency_s = 0.0005}, {}}});
  EXPECT_GT(gain_of(advise(input),
                    "costs the slowest device 1.0 ms whatever its size, and is on its way between devices for 1.0 ms;"),
            0);
}

TEST(Chunks, FixedCostsAreThoseOfAllStagesOfADevice) {
  AdviceInput input = pipeline({0.9, 0.9}, 16);
  input.plan.schedule = "interleaved";
  input.plan.virtual_stages = 2;
  input.plan.partition = {{1, 1, 1, 1}};
  know_costs(input, std::vector(4, LayerCost{.input_gradient = {0.9 / 2 / 16, 0}}));
  EXPECT_GT(gain_of(advise(input), "costs the slowest device 56.2 ms whatever its size"), 0);
}

TEST(Chunks, TheSlowestDeviceIsTheOneWhoseLayersTakeLongest) {
  AdviceInput input = equal_stages(2, 16, 64, {0.001, 0.0001});
  std::vector<LayerCost> layers = input.costs.layers;
  layers[1].input_gradient.b_s *= 10;  // 5 ms a micro-batch
  layers[0].input_gradient.a_s = 0.002;
  know_costs(input, layers);
  EXPECT_GT(gain_of(advise(input), "costs the slowest device 1.0 ms whatever"), 0);
}

TEST(Chunks, OfVeryManyTheOneThatIsBestIsStillFound) {
  const AdviceInput input = equal_stages(1, 200, 6400, {0.01, 0.0001});
  EXPECT_GT(gain_of(advise(input), "pipeline.chunks = 1 predicts"), 0) << "every third is tried, and powers of two";
}

// Predictions are compared with each other, whatever a step was measured to take.
TEST(Advise, PromisesNoMoreThanTheStep) {
  AdviceInput fewer = equal_stages(2, 16, 64, {0.01, 0.0001}), more = equal_stages(4, 2, 64, {0.0005, 0.0001});
  const double of_fewer = gain_of(advise(fewer), "micro-batches costs"), of_more = gain_of(advise(more), "fills");
  fewer.step /= 1000, more.step /= 1000;
  EXPECT_NEAR(gain_of(advise(fewer), "micro-batches costs"), of_fewer, 1e-12);
  EXPECT_NEAR(gain_of(advise(more), "fills"), of_more, 1e-12);
  AdviceInput unbalanced = pipeline({0.3, 0.6});  // 0.675 s of computing alone, 0.5625 of equal devices
  unbalanced.step /= 1000;
  EXPECT_NEAR(gain_of(advise(unbalanced), "can save up to 17 % of it"), 1 - 0.5625 / 0.675, 1e-12);
}

// A backward over four layers of 64 MiB each, a network of 512 MiB/s. In one bucket all of it comes after the backward;
// in buckets of a layer three are whole before its end.
TEST(Buckets, AreAsLargeAsTheStepIsShortest) {
  AdviceInput input = pipeline({0.8}, /*chunks=*/1);
  std::vector<LayerCost> layers = layers_of({0.2, 0.2, 0.2, 0.2});
  for (LayerCost& layer : layers) layer.gradient_bytes = 64 << 20;
  input.plan.partition = {{4}};
  StepOverheads overheads{.bucket_bytes = 256 << 20};
  know_costs(input, layers, overheads);
  EXPECT_THAT(advise(input), IsEmpty()) << "no sums are known";
  overheads.all_reduce = LinkCost{.latency_s = 0.01, .bytes_per_s = 512 << 20};
  know_costs(input, layers, overheads);
  const auto advice = advise(input);
  ASSERT_THAT(advice, SizeIs(1));
  EXPECT_THAT(advice[0].sentence, HasSubstr("gradients are summed in buckets of 256 MiB; replicas.bucket_mb = "));
  double least = 1e9;
  int best = 0;
  for (const int mib : {1, 2, 4, 8, 16, 32, 64}) {
    overheads.bucket_bytes = mib << 20;
    const double now = predict_step(input.plan, layers, 64, overheads).seconds;
    if (now < least) least = now, best = mib;
  }
  EXPECT_THAT(advice[0].sentence, HasSubstr(concat("bucket_mb = ", best, " predicts"))) << least;
  overheads.bucket_bytes = best << 20;
  know_costs(input, layers, overheads);
  EXPECT_THAT(advise(input), IsEmpty()) << "it is the best already";
}

}  // namespace
}  // namespace sluice::tune
