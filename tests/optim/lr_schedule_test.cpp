// The numbers marked "torch" were printed once by torch 2.11: a scheduler of torch.optim.lr_scheduler over SGD with
// lr = 0.1, `print(repr(optimizer.param_groups[0]["lr"]))` before each `optimizer.step(); scheduler.step()`.
#include "optim/lr_schedule.h"

#include <cmath>

#include <gtest/gtest.h>

namespace sluice::optim {
namespace {

void expect_rates(const LrSchedule& schedule, const std::vector<double>& expected) {
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(schedule.at(static_cast<std::int64_t>(step)), expected[step], 1e-14) << "step " << step;
  }
}

TEST(LrSchedule, ConstantStaysAndMayWarmUp) {
  expect_rates({.kind = "constant", .lr = 0.1, .total_steps = 4}, {0.1, 0.1, 0.1, 0.1});
  expect_rates({.kind = "constant", .lr = 0.1, .warmup_steps = 4, .total_steps = 6},
               {0.025, 0.05, 0.075, 0.1, 0.1, 0.1});
}

TEST(LrSchedule, CosineIsTorchs) {
  // torch: CosineAnnealingLR(T_max=8, eta_min=0.01)
  expect_rates({.kind = "cosine", .lr = 0.1, .lr_min = 0.01, .total_steps = 8},
               {0.1, 0.0965745789630079, 0.08681980515339463, 0.07222075445642905, 0.055, 0.03777924554357096,
                0.023180194846605363, 0.013425421036992097});
}

TEST(LrSchedule, CosineAfterAWarmUpFallsOverTheStepsThatRemain) {
  // torch: SequentialLR([LinearLR(0.25, 1.0, 3), CosineAnnealingLR(T_max=5)], milestones=[4])
  expect_rates({.kind = "cosine", .lr = 0.1, .warmup_steps = 4, .total_steps = 9},
               {0.025, 0.05, 0.07500000000000001, 0.1, 0.1, 0.09045084971874738, 0.06545084971874737,
                0.03454915028125263, 0.009549150281252633});
}

TEST(LrSchedule, LinearIsTorchs) {
  // torch: LinearLR(start_factor=1, end_factor=0.1, total_iters=8)
  expect_rates({.kind = "linear", .lr = 0.1, .lr_min = 0.01, .total_steps = 8},
               {0.1, 0.08875, 0.07749999999999999, 0.06624999999999999, 0.05499999999999999, 0.04374999999999999,
                0.032499999999999994, 0.021249999999999995});
}

TEST(LrSchedule, PolynomialIsTorchs) {
  // torch: PolynomialLR(total_iters=8, power=2)
  expect_rates({.kind = "polynomial", .lr = 0.1, .total_steps = 8, .power = 2},
               {0.1, 0.0765625, 0.05625, 0.03906250000000001, 0.02500000000000001, 0.014062500000000006,
                0.006250000000000002, 0.0015625000000000005});
}

TEST(LrSchedule, ExponentialIsTorchs) {
  // torch: ExponentialLR(gamma=0.9)
  expect_rates({.kind = "exponential", .lr = 0.1, .total_steps = 8, .decay_every = 1, .decay = 0.9},
               {0.1, 0.09000000000000001, 0.08100000000000002, 0.07290000000000002, 0.06561000000000002,
                0.05904900000000002, 0.05314410000000002, 0.04782969000000002});
  const LrSchedule slow{
      .kind = "exponential", .lr = 0.1, .warmup_steps = 2, .total_steps = 80, .decay_every = 10, .decay = 0.5};
  EXPECT_NEAR(slow.at(10), 0.05, 1e-15);
  EXPECT_NEAR(slow.at(15), 0.1 * std::pow(0.5, 1.5), 1e-15);
  EXPECT_NEAR(slow.at(0), 0.05, 1e-15);
}

TEST(LrSchedule, WhatFallsOverTheStepsThatRemainBeginsAfterTheWarmUp) {
  for (const char* kind : {"linear", "polynomial"}) {
    const LrSchedule schedule{.kind = kind, .lr = 0.1, .warmup_steps = 4, .total_steps = 9};
    EXPECT_NEAR(schedule.at(3), 0.1, 1e-15);
    EXPECT_NEAR(schedule.at(4), 0.1, 1e-15);
    EXPECT_NEAR(schedule.at(8), 0.02, 1e-15);
  }
}

TEST(LrSchedule, StepMultipliesAtEachOfItsSteps) {
  // torch: MultiStepLR([2, 5], gamma=0.1)
  expect_rates({.kind = "step", .lr = 0.1, .total_steps = 7, .decay_steps = {2, 5}, .decay = 0.1},
               {0.1, 0.1, 0.010000000000000002, 0.010000000000000002, 0.010000000000000002, 0.0010000000000000002,
                0.0010000000000000002});
}

TEST(LrSchedule, StepMayMultiplyEverySoManySteps) {
  // torch: StepLR(3, gamma=0.93)
  expect_rates({.kind = "step", .lr = 0.1, .total_steps = 8, .decay_every = 3, .decay = 0.93},
               {0.1, 0.1, 0.1, 0.09300000000000001, 0.09300000000000001, 0.09300000000000001, 0.08649000000000001,
                0.08649000000000001});
  const LrSchedule fifty{
      .kind = "step", .lr = 0.001, .warmup_steps = 40, .total_steps = 2000, .decay_every = 50, .decay = 0.93};
  for (const std::int64_t step : {0, 39}) EXPECT_DOUBLE_EQ(fifty.at(step), 0.001 * (step + 1) / 40.0) << step;
  for (const std::int64_t step : {40, 49, 50, 99, 100, 1999})
    EXPECT_DOUBLE_EQ(fifty.at(step), 0.001 * std::pow(0.93, step / 50)) << step;
  EXPECT_NEAR(fifty.at(1711), 8.48e-5, 5e-8) << "as the anytime project's runs have logged it";
}

TEST(LrSchedule, OneCycleIsTorchs) {
  // torch: OneCycleLR(max_lr=0.1, total_steps=10)
  expect_rates({.kind = "onecycle", .lr = 0.1, .total_steps = 10},
               {0.0040000000000000036, 0.052000000000000005, 0.1, 0.09504846320134738, 0.0811745653949763,
                0.06112620219362893, 0.03887419780637107, 0.0188258346050237, 0.004951936798652629, 4e-07});
  // torch: OneCycleLR(max_lr=0.1, total_steps=7): 30 % of it is no whole number
  expect_rates({.kind = "onecycle", .lr = 0.1, .total_steps = 7},
               {0.0040000000000000036, 0.09805566273349588, 0.09190443762697106, 0.06726838364805451,
                0.035773877573965704, 0.00992967918932656, 4e-07});
}

TEST(LrSchedule, OneCycleRisesOverTheWarmUpWhenThereIsOne) {
  // torch: OneCycleLR(max_lr=0.1, total_steps=12, pct_start=4/12)
  expect_rates(
      {.kind = "onecycle", .lr = 0.1, .warmup_steps = 4, .total_steps = 12},
      {0.0040000000000000036, 0.027999999999999997, 0.076, 0.1, 0.09619399184965784, 0.08535539763797113,
       0.06913429508156803, 0.0500002, 0.03086610491843199, 0.014645002362028864, 0.0038064081503421656, 4e-07});
}

TEST(LrSchedule, IsPositiveAndAtMostLrForTinyRuns) {
  for (const char* kind : {"constant", "cosine", "linear", "polynomial", "exponential", "step", "onecycle"}) {
    for (std::int64_t total = 1; total <= 5; ++total) {
      for (std::int64_t warmup = 0; warmup <= total; ++warmup) {
        const LrSchedule schedule{.kind = kind,
                                  .lr = 0.1,
                                  .warmup_steps = warmup,
                                  .total_steps = total,
                                  .decay_steps = {1},
                                  .decay_every = 2};
        for (std::int64_t step = 0; step < total; ++step) {
          EXPECT_GT(schedule.at(step), 0) << kind << " " << total << " " << warmup << " " << step;
          EXPECT_LE(schedule.at(step), 0.1 + 1e-15) << kind << " " << total << " " << warmup << " " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::optim
