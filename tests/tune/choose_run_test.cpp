#include "tune/choose_run.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::tune {
namespace {

Candidate candidate(int devices, int chunks, const std::string& schedule, double seconds) {
  Candidate one;
  one.plan.partition.layers_per_stage.assign(devices, 1);
  one.plan.chunks = chunks;
  one.plan.schedule = schedule;
  one.step.seconds = seconds;
  return one;
}

TEST(NextToRun, IsTheBestByWhatTheOthersTook) {
  const std::vector<Candidate> found{candidate(1, 1, "gpipe", 1.0), candidate(1, 2, "gpipe", 1.1),
                                     candidate(2, 4, "1f1b", 1.2)};
  EXPECT_EQ(next_to_run(found, {}), &found[0]);
  // One device took twice as long as predicted: so may the other plan of one device.
  std::vector<PlanRun> runs{{.candidate = found[0], .step_s = 2}};
  runs.push_back({.candidate = candidate(2, 8, "1f1b", 1.0), .step_s = 1});
  EXPECT_EQ(next_to_run(found, runs), &found[2]);
  runs.push_back({.candidate = found[2], .ran = false});
  EXPECT_EQ(next_to_run(found, runs), &found[1]) << "what does not run says nothing of times";
  runs.push_back({.candidate = found[1], .step_s = 3});
  EXPECT_EQ(next_to_run(found, runs), nullptr);
}

TEST(NextToRun, IsASimplerOneThatNoMeasurementWouldTellFromTheBest) {
  std::vector<Candidate> found{candidate(2, 8, "zb-h1", 1.000), candidate(2, 16, "zb-h1", 1.001),
                               candidate(2, 8, "gpipe", 1.010), candidate(1, 1, "gpipe", 1.030)};
  EXPECT_EQ(next_to_run(found, {}), &found[0]) << "the best by prediction first";
  std::vector<PlanRun> runs{{.candidate = found[0], .step_s = 1, .error = 0.005}};
  EXPECT_EQ(next_to_run(found, runs), &found[2]) << "1 % is within twice sqrt(2) half percents, 3 % is not";
  runs.front().error = 0.001;
  EXPECT_EQ(next_to_run(found, runs), &found[1]) << "1 % would be told";
  runs.front().error = 0.1;
  EXPECT_EQ(next_to_run(found, runs), &found[2]) << "however noisy, 3 % are not given away";
  runs.front().error = 0.005;
  runs.push_back({.candidate = found[2], .step_s = 1.01, .error = 0.005});
  EXPECT_EQ(next_to_run(found, runs), &found[1]) << "the simplest has run";
}

TEST(AddSimplest, OnlyWhereNothingAsSimpleIsThere) {
  const std::vector<Candidate> found{candidate(2, 8, "zb-h1", 1.000), candidate(2, 8, "interleaved", 1.012)};
  const std::vector<Candidate> plain{candidate(2, 8, "1f1b", 1.005), candidate(2, 4, "gpipe", 1.011),
                                     candidate(1, 1, "gpipe", 1.2)};
  const auto times = [](const std::vector<Candidate>& all) {
    std::vector<double> seconds;
    for (const Candidate& one : all) seconds.push_back(one.step.seconds);
    return seconds;
  };
  std::vector<Candidate> best = found;
  add_simplest(best, plain);
  EXPECT_EQ(times(best), (std::vector{1.000, 1.011, 1.012})) << "fewer chunks, and in its place";
  add_simplest(best, plain);
  EXPECT_EQ(best.size(), 3U) << "it is there";
  best = found;
  add_simplest(best, std::span(plain).last(1));
  EXPECT_EQ(best.size(), 2U) << "20 % slower";
  best.assign(kMostCandidates, found[0]);
  add_simplest(best, plain);
  EXPECT_EQ(best.size(), static_cast<std::size_t>(kMostCandidates));
  EXPECT_EQ(best.back().step.seconds, 1.011);
}

TEST(SimplestOfFastest, OnlyAmongThoseThatNoMeasurementTellsApart) {
  std::vector<PlanRun> runs{{candidate(2, 8, "zb-h1", 1), true, 1.00, 0.01},
                            {candidate(2, 8, "1f1b", 1), true, 1.02, 0.01},
                            {candidate(2, 4, "gpipe", 1), true, 1.05, 0.01},
                            {candidate(1, 1, "gpipe", 1), false, 0, 0}};
  EXPECT_EQ(simplest_of_fastest(runs), &runs[1]) << "2 % is within twice sqrt(2) %, 5 % is not";
  runs[2].step_s = 1.03;
  EXPECT_EQ(simplest_of_fastest(runs), &runs[1]) << "3 % is within 1 % + 1 % twice, but errors add up as squares";
  runs[2].step_s = 1.028;
  EXPECT_EQ(simplest_of_fastest(runs), &runs[2]) << "fewer chunks";
  runs[2].candidate.plan.virtual_stages = 2;
  runs[2].candidate.plan.partition.layers_per_stage.assign(4, 1);
  EXPECT_EQ(simplest_of_fastest(runs), &runs[1]) << "several stages a device";
  runs[1].candidate.plan.recompute = {true, false};
  EXPECT_EQ(simplest_of_fastest(runs), &runs[0]) << "recomputes";
  for (PlanRun& run : runs) run.error = 0;
  runs[1].candidate.plan.recompute.clear();
  EXPECT_EQ(simplest_of_fastest(runs), &runs[0]) << "without noise the fastest";
  for (PlanRun& run : runs) run.ran = false;
  EXPECT_EQ(simplest_of_fastest(runs), nullptr);
  EXPECT_EQ(simplest_of_fastest({}), nullptr);
}

TEST(SimplestOfFastest, FewerDevicesAreSimplerThanFewerChunks) {
  const std::vector<PlanRun> runs{{candidate(2, 2, "gpipe", 1), true, 1, 0.01},
                                  {candidate(1, 8, "gpipe", 1), true, 1, 0.01}};
  EXPECT_EQ(simplest_of_fastest(runs), &runs[1]);
}

}  // namespace
}  // namespace sluice::tune
