// How well the fitted costs of layers predict micro-batch sizes that they were not fitted to. It times things, so it
// is no test for a busy machine: all sizes take turns and the shortest times count, which helps, up to a point.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "core/text.h"
#include "measure/measure_layers.h"
#include "profiler/affine_fit.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

using profiler::LayerTimes;
using profiler::MeasuredLayer;

const std::vector<std::int64_t> kFitted = measure::sizes_to_profile(32);
const std::vector<std::int64_t> kHeldOut{3, 6, 12, 24};

double sum(const LayerTimes& times) { return times.forward_s + times.input_gradient_s + times.weight_gradient_s; }
double forward(const LayerTimes& times) { return times.forward_s; }

template <typename Kind>
AffineCost fit(const MeasuredLayer& layer, const Kind& kind) {
  std::vector<TimeAtSize> points;
  for (const LayerTimes& times : layer.times) {
    if (std::ranges::find(kFitted, times.samples) != kFitted.end())
      points.push_back({static_cast<double>(times.samples), kind(times)});
  }
  return profiler::fit_affine(points);
}

// Mean over the sizes that were held out of the relative deviation.
template <typename Kind>
double error_of(const MeasuredLayer& layer, const Kind& kind) {
  const AffineCost line = fit(layer, kind);
  double error = 0;
  for (const LayerTimes& times : layer.times) {
    if (std::ranges::find(kHeldOut, times.samples) != kHeldOut.end())
      error += std::abs(line.at(static_cast<double>(times.samples)) / kind(times) - 1);
  }
  return error / static_cast<double>(kHeldOut.size());
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class ProfileAccuracy : public testing::TestWithParam<const char*> {};

TEST_P(ProfileAccuracy, UnseenSizesArePredictedWithinFivePercent) {
  config::Config config;
  config.device.list.choice = "cpu";
  config.device.threads = 1;
  config.data.name = "shapes";
  config.data.samples = 64;
  config.model.name = GetParam();
  config.model.size = "nano";
  std::vector<std::int64_t> sizes = kFitted;
  sizes.insert(sizes.end(), kHeldOut.begin(), kHeldOut.end());
  std::ranges::sort(sizes);
  const auto layers = measure::measure_layers(
      workload_of(make_setup(config)),
      {.sizes = sizes, .least_rounds = 6, .most_rounds = 40, .budget_s = 40, .needed_size = 32, .with_memory = false});
  std::vector<double> of_sum, of_forward;
  for (const MeasuredLayer& layer : layers) {
    of_sum.push_back(error_of(layer, sum));
    of_forward.push_back(error_of(layer, forward));
    std::cout << "  " << layer.name << ": " << fixed(of_sum.back() * 100, 1) << " %, forward "
              << fixed(of_forward.back() * 100, 1) << " %\n";
  }
  std::cout << GetParam() << ": median over " << layers.size() << " layers " << fixed(median(of_sum) * 100, 1)
            << " %, forward alone " << fixed(median(of_forward) * 100, 1) << " %, worst layer "
            << fixed(*std::ranges::max_element(of_sum) * 100, 1) << " %\n";
  EXPECT_LE(median(of_sum), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Models, ProfileAccuracy, testing::Values("resnet8", "vit", "resnet18"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace sluice::train
