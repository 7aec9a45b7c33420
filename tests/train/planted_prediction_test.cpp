// The predicted step follows what is planted in real steps: a layer that is 30 % slower moves both alike. Layers note
// how long they really slept, and the prediction is made from that; of several steps the best must agree, because other
// programs may take the processor in between, but a wrong prediction is wrong in every step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sleepy_layers.h"
#include "tune/predict.h"

namespace sluice::train {
namespace {

using std::chrono::milliseconds;

constexpr int kChunks = 4, kMostSteps = 15;
constexpr double kMostError = 0.02;

// As a profile has them: what a micro-batch took in the mean.
std::vector<LayerCost> costs_of(const std::vector<Planted>& stages) {
  std::vector<LayerCost> costs;
  for (const Planted& stage : stages)
    costs.push_back({.forward = {.a_s = to_s(stage.slept_forward) / kChunks},
                     .input_gradient = {.a_s = to_s(stage.slept_backward) / kChunks}});
  return costs;
}

struct Step {
  double seconds = 0;
  std::vector<LayerCost> costs;  // of its own layers
};

// Predicted over measured of the step that agrees best, and that step.
double best_ratio(Plantation planted, const std::string& schedule, Step* best_step) {
  engine::Composition grid = compose_sleepy(planted, kChunks, nullptr, schedule);
  engine::TrainStep step(grid, {});
  double best = std::numeric_limits<double>::infinity();
  for (int number = 0; number < kMostSteps && std::abs(best - 1) > kMostError / 2; ++number) {
    for (Planted& stage : planted[0]) stage.reset();
    const double seconds = to_s(run_step(grid, step, batch_of(kChunks * 2), number).step);
    const std::vector<LayerCost> costs = costs_of(planted[0]);
    const double ratio = tune::predict_step(grid.plan, costs, kChunks * 2, {}).seconds / seconds;
    if (std::abs(ratio - 1) < std::abs(best - 1)) best = ratio, *best_step = {seconds, costs};
  }
  return best;
}

TEST(PlantedPrediction, ALayerThatIs30PercentSlowerMovesPredictionAndStepAlike) {
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    for (const std::size_t slow : {0U, 1U, 2U}) {
      Plantation planted{{{milliseconds(10), milliseconds(20)},
                          {milliseconds(10), milliseconds(20)},
                          {milliseconds(10), milliseconds(20)}}};
      Step plain, slowed;
      EXPECT_NEAR(best_ratio(planted, schedule, &plain), 1, kMostError) << schedule;
      planted[0][slow] = {milliseconds(13), milliseconds(26)};
      EXPECT_NEAR(best_ratio(planted, schedule, &slowed), 1, kMostError) << schedule << ", layer " << slow;

      std::vector<LayerCost> edited = plain.costs;
      edited[slow] = edited[slow].times_scaled(1.3);
      const Plan plan{.partition = {{1, 1, 1}}, .chunks = kChunks, .schedule = schedule};
      const double predicted = tune::predict_step(plan, edited, kChunks * 2, {}).seconds;
      EXPECT_GT(slowed.seconds / plain.seconds, 1.1) << "all wait for the slowest";
      EXPECT_NEAR(predicted / plain.seconds, slowed.seconds / plain.seconds, 5 * kMostError)
          << schedule << ", layer " << slow;
    }
  }
}

}  // namespace
}  // namespace sluice::train
