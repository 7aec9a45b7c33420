// load_times() against threads that share cores in turns, in very small slices.
#include "tune/loading.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "pipeline/schedule/generators.h"
#include "tune/predict.h"

namespace sluice::tune {
namespace {

// When each of `devices` threads has done `step` seconds of work, while `workers` threads do `load` seconds between
// them: all that have something to do get an equal share of the cores.
double end_of_devices(int devices, double step, int threads, double load, int cores) {
  const double slice = step / 200'000;
  double time = 0, done = 0, loaded = 0;
  while (done < step) {
    const int ready = devices + (loaded < load ? threads : 0);
    const double share = std::min(1.0, static_cast<double>(cores) / ready);
    done += slice * share;
    if (loaded < load) loaded += slice * share * threads;
    time += slice;
  }
  return time;
}

TEST(LoadTimes, DevicesLoseWhatSharingTheCoresTakes) {
  for (const int cores : {1, 2, 4})
    for (const int threads : {1, 2, 3})
      for (const int devices : {1, 2, 4}) {
        const double load = 0.08;
        const LoadTimes times = load_times({.cost = {.sample_s = load / 8, .cpu_s = load / 8},
                                            .threads = threads,
                                            .samples = 8,
                                            .cores = cores,
                                            .busy_threads = devices},
                                           1.0);
        const double alone = std::max(1.0, static_cast<double>(devices) / cores);
        EXPECT_NEAR(alone + times.slows, end_of_devices(devices, 1.0, threads, load, cores), 1e-4)
            << cores << " cores, " << threads << " workers, " << devices << " devices";
        EXPECT_EQ(times.waits, 0);
      }
}

TEST(LoadTimes, AStepIsNoShorterThanItsBatchTakes) {
  Loading loading{.cost = {.sample_s = 0.01, .cpu_s = 0}, .threads = 1, .samples = 32, .cores = 2, .busy_threads = 2};
  EXPECT_DOUBLE_EQ(load_times(loading, 0.1).waits, 0.22);
  EXPECT_DOUBLE_EQ(load_times(loading, 0.5).waits, 0);
  loading.threads = 4;  // four samples wait for the disk at once
  EXPECT_DOUBLE_EQ(load_times(loading, 0.05).waits, 0.03);
  loading.cost.cpu_s = 0.01;  // at work: two cores do 0.32 s of it and 0.1 s of the devices' own
  EXPECT_NEAR(load_times(loading, 0.05).waits + load_times(loading, 0.05).slows, (0.32 + 0.1) / 2 - 0.05, 1e-12);
  loading.busy_threads = 0;  // devices that are no cores
  EXPECT_NEAR(load_times(loading, 0.05).waits, 0.16 - 0.05, 1e-12);
  EXPECT_EQ(load_times(loading, 0.05).slows, 0);
}

TEST(LoadTimes, WithoutWorkersNothingGoesOnMeanwhile) {
  const Loading loading{.cost = {.sample_s = 0.01, .cpu_s = 0.01}, .threads = 0, .samples = 4, .cores = 2};
  EXPECT_DOUBLE_EQ(load_times(loading, 1).waits, 0.04);
  EXPECT_DOUBLE_EQ(load_times(loading, 1).slows, 0);
}

TEST(LoadTimes, AreInThePredictedStep) {
  const auto schedule = pipeline::with_reductions(pipeline::make_schedule("gpipe", {.stages = 2, .micro_batches = 2}));
  StepCosts costs{.stages = {{.forward = 1, .input = 1, .weight = 1}, {.forward = 1, .input = 1, .weight = 1}}};
  costs.overheads.other_s = 0.25;
  const double without = predict_step(schedule, costs).seconds;
  costs.overheads.loading =
      Loading{.cost = {.sample_s = 3, .cpu_s = 0.5}, .threads = 1, .samples = 4, .cores = 2, .busy_threads = 2};
  const StepPrediction step = predict_step(schedule, costs);
  EXPECT_DOUBLE_EQ(step.seconds, 12) << "a batch takes so long";
  EXPECT_DOUBLE_EQ(step.load, 12 - without - 1) << "and two seconds of work take one from two devices on two cores";
  for (const DevicePrediction& device : step.devices)
    EXPECT_DOUBLE_EQ(device.compute + device.bubble + device.all_reduce + device.update + device.load + device.other,
                     step.seconds);
}

TEST(PredictStep, ReplicasWaitForTheSlowest) {
  const auto schedule = pipeline::with_reductions(pipeline::make_schedule("gpipe", {.stages = 1, .micro_batches = 2}));
  StepCosts costs{.stages = {{.forward = 1, .input = 1, .weight = 1}}};
  costs.overheads.deviation = 0.1;
  EXPECT_DOUBLE_EQ(predict_step(schedule, costs).seconds, 6) << "of one there is no other";
  costs.overheads.replicas = 2;
  // Of two independent normals the larger one lies 1 / sqrt(pi) deviations beyond the mean.
  EXPECT_NEAR(predict_step(schedule, costs).seconds, 6 * (1 + 0.1 * 0.5641895835477563), 1e-9);
}

}  // namespace
}  // namespace sluice::tune
