// What measure_steps() makes of the records of a run. The run is this program once more, with made-up times.
#include "train/study/measured_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <string_view>
#include <vector>

namespace sluice::train {
namespace {

constexpr double kWarmUp_ms = 1000;
const std::vector<double> kSteps_ms{90, 110, 100, 100, 95, 105, 100, 100};

nlohmann::json step_of(double ms) {
  return {{"event", "step"},        {"step_ms", ms},      {"load_ms", 1},
          {"forward_ms", ms * 0.3}, {"backward_ms", 60},  {"allreduce_exposed_ms", 2},
          {"optimizer_ms", 3},      {"allreduce_ms", 50}, {"transfer_ms", 7}};
}

int play_run(const std::filesystem::path& run) {
  std::filesystem::create_directories(run);
  std::ofstream out(run / "metrics.jsonl");
  for (int i = 0; i < Measuring().warm_up; ++i) out << step_of(kWarmUp_ms) << '\n';
  for (const double ms : kSteps_ms) out << step_of(ms) << '\n';
  out << nlohmann::json{{"event", "summary"},
                        {"peak_memory_bytes", {{"cpu:0", 5000}, {"cpu:1", 7000}, {"process", 9000}}}}
      << '\n';
  return out.good() ? 0 : 1;
}

// Of normally distributed times the median's deviation is sqrt(pi / 2) of the mean's. Half of the steps are at most 2.5
// ms from the middle one, as half of normally distributed ones are within 1 / 1.4826 deviations.
TEST(MeasuredPlan, HasMediansOfTheTimedStepsAndTheErrorOfTheirMedian) {
  const MeasuredSteps steps = measure_steps({}, {});
  EXPECT_EQ(steps.failure, "");
  EXPECT_NEAR(steps.step_s, 0.1, 1e-12);
  const double deviation = 1.4826 * 2.5, count = 8;
  EXPECT_NEAR(steps.error, std::sqrt(std::numbers::pi / 2) * deviation / std::sqrt(count) / 100, 1e-6);
  EXPECT_NEAR(steps.load_s, 0.001, 1e-12);
  EXPECT_NEAR(steps.compute_s, 0.03 + 0.06, 1e-12);
  EXPECT_NEAR(steps.allreduce_exposed_s, 0.002, 1e-12);
  EXPECT_NEAR(steps.update_s, 0.003, 1e-12);
  EXPECT_EQ(steps.peak_bytes, 7000U);
}

}  // namespace
}  // namespace sluice::train

int main(int argc, char** argv) {
  constexpr int kRunDirectory = 5;
  if (argc > kRunDirectory && std::string_view(argv[2]) == "train") return sluice::train::play_run(argv[kRunDirectory]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
