// advised_step: steps as the tests of advice make them up.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tune/advice.h"
#include "tune/predict.h"

namespace sluice::tune::test {

inline AdviceInput empty_step(int chunks = 4) {
  AdviceInput input;
  input.step = 1;
  input.plan.chunks = chunks;
  return input;
}

// A third of it forward.
inline DeviceSeconds computing(double seconds, int device = 0) {
  return {.device = device, .forward = seconds / 3, .backward = seconds * 2 / 3};
}

// One replica whose stages, of three layers each, compute these seconds of a step of one second, in four chunks.
inline AdviceInput pipeline(const std::vector<double>& compute, int chunks = 4) {
  AdviceInput input = empty_step(chunks);
  for (const double seconds : compute) {
    input.devices.push_back(computing(seconds, static_cast<int>(input.devices.size())));
    input.plan.partition.layers_per_stage.push_back(3);
  }
  input.replica_samples = 64;
  return input;
}

// Of layers that take these seconds of a step of 64 samples, a third of it forward.
inline std::vector<LayerCost> layers_of(const std::vector<double>& seconds) {
  std::vector<LayerCost> layers;
  for (const double s : seconds)
    layers.push_back({.forward = {.b_s = s / 3 / 64},
                      .input_gradient = {.b_s = s / 2 / 64},
                      .weight_gradient = {.b_s = s / 6 / 64}});
  return layers;
}

// Predictions from these costs, as `sluice profile` makes them. Requires: `replica_samples` is set.
inline void know_costs(AdviceInput& input, std::vector<LayerCost> layers, StepOverheads overheads = {}) {
  constexpr double kMiB = 1024 * 1024;
  input.costs.layers = layers;
  input.costs.borders = overheads.borders;
  input.costs.bucket_mb = overheads.bucket_bytes / kMiB;
  input.costs.predict = [layers = std::move(layers), overheads = std::move(overheads), samples = input.replica_samples](
                            const Plan& plan, double bucket_mb) -> std::optional<double> {
    StepOverheads costs = overheads;
    costs.bucket_bytes = bucket_mb * kMiB;
    try {
      return predict_step(plan, layers, samples, costs).seconds;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  };
}

inline double gain_of(const std::vector<Advice>& advice, const std::string& words) {
  double gain = 0;
  for (const Advice& one : advice) {
    if (one.sentence.find(words) != std::string::npos) gain += one.gain;
  }
  return gain;
}

}  // namespace sluice::tune::test
