// What a plan's borders are predicted to cost, where devices are linked in several ways.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "train/plan/what_if.h"

namespace sluice::train {
namespace {

profiler::LayerProfile of_linked_gpus() {
  return {.fingerprint = {.device = "cuda:0"},
          .layers = std::vector<profiler::MeasuredLayer>(4),
          .stage_links = {{0, 1, "cuda:0", "cuda:1", {.latency_s = 1}},
                          {1, 2, "cuda:1", "cuda:2", {.latency_s = 2}},
                          {2, 3, "cuda:2", "cpu:0", {.latency_s = 3}}}};
}

std::vector<double> latencies(const std::vector<std::string>& devices, const profiler::LayerProfile& profile) {
  config::Config config;
  config.device.list.names = devices;
  const Plan plan{.partition = {{1, 1, 1, 1}}, .chunks = 1, .global_batch = 1, .schedule = "gpipe"};
  std::vector<double> latencies;
  for (const LinkCost& border : overheads_by_profile(config, profile, plan, /*processes=*/1).borders)
    latencies.push_back(border.latency_s);
  return latencies;
}

TEST(DeviceLinks, ABorderCostsWhatWasMeasuredBetweenItsDevices) {
  const profiler::LayerProfile profile = of_linked_gpus();
  EXPECT_EQ(latencies({"cuda:02", "cuda:1", "cuda:0", "cuda:1"}, profile), (std::vector<double>{2, 1, 1, 0}));
  EXPECT_EQ(latencies({}, profile), (std::vector<double>{1, 2, 1, 0})) << "of the last two GPUs nothing is known";
}

TEST(DeviceLinks, WhereNothingWasMeasuredItCostsWhatOthersOfTheseKindsDo) {
  profiler::LayerProfile profile = of_linked_gpus();
  EXPECT_EQ(latencies({"cuda:0", "cuda:2", "cpu:0", "cuda:1"}, profile), (std::vector<double>{1, 3, 3, 0}));
  EXPECT_EQ(latencies({"cpu:0", "cpu:1", "cpu:2", "cpu:3"}, profile), (std::vector<double>{1, 1, 1, 0}));
  profile.stage_links.clear();
  EXPECT_EQ(latencies({}, profile), (std::vector<double>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace sluice::train
