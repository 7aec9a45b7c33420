// The predicted step follows what is planted in real steps: a layer that is four times as slow moves both alike, as far
// as its schedule's closed form says. Sleeps are never too short, so no real step is faster than that, however busy the
// machine is. Layers note how long they really slept, and a prediction is made from that; of several steps the best
// must agree, because other programs may take the processor in between, but a wrong prediction is wrong in every step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "sleepy_layers.h"
#include "tune/predict.h"

namespace sluice::train {
namespace {

using std::chrono::milliseconds;

constexpr int kStages = 3, kChunks = 4, kSlower = 4, kMostSteps = 15;
constexpr milliseconds kForward{10}, kBackward{20};
// Of a step that is predicted from its own sleeps. A slow layer that is not in the prediction makes it 60 % too short.
constexpr double kMostError = 0.1;

// As a profile has them: what a micro-batch took in the mean.
std::vector<LayerCost> costs_of(const std::vector<Planted>& stages) {
  std::vector<LayerCost> costs;
  for (const Planted& stage : stages)
    costs.push_back({.forward = {.a_s = to_s(stage.slept_forward) / kChunks},
                     .input_gradient = {.a_s = to_s(stage.slept_backward) / kChunks}});
  return costs;
}

// slow: a layer that takes kSlower times as long.
Plantation planted_with(std::optional<std::size_t> slow) {
  Plantation planted{std::vector<Planted>(kStages, {kForward, kBackward})};
  if (slow) planted[0][*slow] = {kSlower * kForward, kSlower * kBackward};
  return planted;
}

// What such a step takes where nothing but sleeping takes time. A slow stage is never idle between its own actions, but
// GPipe's in the middle of its step; before them the stages in front of it fill, after them they drain.
double closed_form_s(const std::string& schedule, std::optional<std::size_t> slow) {
  const double micro_batch_s = std::chrono::duration<double>(kForward + kBackward).count();
  if (!slow) return (kChunks + kStages - 1) * micro_batch_s;
  const auto others = schedule == "gpipe" ? kStages - 1 : static_cast<int>(*slow);
  return (kSlower * kChunks + others) * micro_batch_s;
}

double predicted_s(const std::string& schedule, const std::vector<LayerCost>& costs) {
  const Plan plan{.partition = {std::vector<int>(kStages, 1)}, .chunks = kChunks, .schedule = schedule};
  return tune::predict_step(plan, costs, kChunks * 2, {}).seconds;
}

std::vector<LayerCost> planned_costs(Plantation planted) {
  for (Planted& stage : planted[0]) {
    stage.slept_forward = kChunks * std::chrono::nanoseconds(stage.forward).count();
    stage.slept_backward = kChunks * std::chrono::nanoseconds(stage.backward).count();
  }
  return costs_of(planted[0]);
}

void expect_prediction_of_real_steps(const std::string& schedule, std::optional<std::size_t> slow) {
  Plantation planted = planted_with(slow);
  const double least_s = closed_form_s(schedule, slow);
  EXPECT_NEAR(predicted_s(schedule, planned_costs(planted)), least_s, 1e-9);
  engine::Composition grid = compose_sleepy(planted, kChunks, nullptr, schedule);
  engine::TrainStep step(grid, {});
  double best = std::numeric_limits<double>::infinity();
  for (int number = 0; number < kMostSteps && std::abs(best - 1) > kMostError / 2; ++number) {
    for (Planted& stage : planted[0]) stage.reset();
    const double seconds = to_s(run_step(grid, step, batch_of(kChunks * 2), number).step);
    EXPECT_GE(seconds, least_s);
    const double ratio = predicted_s(schedule, costs_of(planted[0])) / seconds;
    if (std::abs(ratio - 1) < std::abs(best - 1)) best = ratio;
  }
  EXPECT_NEAR(best, 1, kMostError);
}

TEST(PlantedPrediction, ALayerThatIsFourTimesAsSlowMovesPredictionAndStepAlike) {
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    for (const std::optional<std::size_t> slow : {std::optional<std::size_t>(), {0}, {1}, {2}}) {
      SCOPED_TRACE(schedule + (slow ? concat(", slow layer ", *slow) : ""));
      expect_prediction_of_real_steps(schedule, slow);
    }
  }
}

}  // namespace
}  // namespace sluice::train
