#include "ps/policy/uneven_workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "core/error.h"
#include "ps/policy/stragglers.h"
#include "uneven_requests.h"

namespace sluice::ps {
namespace {

double harmonic(int n, int power = 1) {
  double sum = 0;
  for (int i = 1; i <= n; ++i) sum += 1 / std::pow(i, power);
  return sum;
}

using Histogram = std::map<std::int64_t, std::int64_t>;

TEST(UnevenWorkers, AFixedStepOfEvenWorkersTakesItsBatch) {
  for (const std::string sync : {"fmb", "bsp"}) {
    const UnevenResult found = simulate_uneven_workers(request_of(sync, 7, 242, 0.03, 50));
    EXPECT_EQ(found.time, 50 * Nanoseconds{7'260'000'000});
    EXPECT_EQ(found.longest_push, 7'260'000'000);
    EXPECT_EQ(found.pushes, 7 * 50);
    EXPECT_EQ(found.examples, 7 * 50 * 242);
    EXPECT_DOUBLE_EQ(found.slowest_worker_s(), 7.26);
    EXPECT_DOUBLE_EQ(found.step_s(), 7.26);
    EXPECT_DOUBLE_EQ(found.steps_per_s(), 1 / 7.26);
    EXPECT_DOUBLE_EQ(found.examples_per_s(), 7 / 0.03);
    EXPECT_EQ(found.staleness, (Histogram{{0, 350}}));
  }
}

TEST(UnevenWorkers, AFixedStepWaitsForTheSlowestOfUnevenOnes) {
  UnevenRequest request = request_of("fmb", 3, 100, 0, 20);
  request.seconds_per_example = {0.01, 0.05, 0.02};
  const UnevenResult found = simulate_uneven_workers(request);
  EXPECT_EQ(found.time, 20 * Nanoseconds{5'000'000'000});
  EXPECT_EQ(found.slowest, 20 * Nanoseconds{5'000'000'000});
}

// The k-th slice, from 0, runs when k slices take less than the limit; whole nanoseconds, so that ties are exact.
TEST(UnevenWorkers, AnAnytimeStepHasTheSlicesThatBeginInTime) {
  std::mt19937 draw(5);
  const auto between = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(draw);
  };
  int ties = 0, cut = 0;
  for (int round = 0; round < 300; ++round) {
    const std::int64_t batch = between(1, 400), partitions = between(1, std::min<std::int64_t>(batch, 20));
    const std::int64_t example_ms = between(1, 30), slice = batch / partitions, slice_ms = slice * example_ms;
    const std::int64_t limit_ms = round % 3 == 0 ? slice_ms * between(1, partitions) : between(1, 3000);
    const std::int64_t in_time = (limit_ms + slice_ms - 1) / slice_ms, slices = std::min(in_time, partitions);
    ties += limit_ms % slice_ms == 0 && in_time < partitions ? 1 : 0;
    cut += in_time < partitions ? 1 : 0;
    const UnevenResult found =
        simulate_uneven_workers(anytime(request_of("amb", 3, batch, 1e-3 * static_cast<double>(example_ms), 2),
                                        1e-3 * static_cast<double>(limit_ms), partitions));
    EXPECT_EQ(found.least_examples, slices * slice) << batch << " " << partitions << " " << limit_ms;
    EXPECT_EQ(found.most_examples, slices * slice);
    EXPECT_EQ(found.time, 2 * slices * slice_ms * 1'000'000);
  }
  EXPECT_GT(ties, 5);
  EXPECT_GT(cut, 100);
}

TEST(UnevenWorkers, AStallCountsInsideTheLimitAndOneSliceAlwaysRuns) {
  // 1.2 s of stall and slices of 0.5 s: two begin before 2 s have gone, at 1.2 and 1.7.
  const UnevenRequest stalled = exponential(request_of("amb", 4, 80, 0.05, 5), 1.2, 0);
  const UnevenResult two = simulate_uneven_workers(anytime(stalled, 2, 8));
  EXPECT_EQ(two.examples, 4 * 5 * 20);
  EXPECT_EQ(two.time, 5 * Nanoseconds{2'200'000'000});
  const UnevenResult one = simulate_uneven_workers(anytime(stalled, 1.1, 8));
  EXPECT_EQ(one.examples, 4 * 5 * 10);
  EXPECT_EQ(one.longest_push, 1'700'000'000);
}

// The mean of the longest of N exponentials is the mean of one times 1 + 1/2 + .. + 1/N; its variance the same with
// squares.
TEST(UnevenWorkers, TheSlowestOfNExponentialsIsTheHarmonicSum) {
  constexpr std::int64_t kSteps = 20'000;
  for (const int workers : {1, 4, 10, 32}) {
    const UnevenResult found = simulate_uneven_workers(
        exponential(request_of("fmb", workers, 100, 0.02, kSteps), /*shift_s=*/0.5, /*mean_s=*/1.5));
    const double deviation = 1.5 * std::sqrt(harmonic(workers, 2) / kSteps);
    EXPECT_NEAR(found.step_s(), 2 + 0.5 + 1.5 * harmonic(workers), 4 * deviation) << workers;
    EXPECT_NEAR(found.slowest_worker_s(), found.step_s(), 1e-6);
  }
}

// A slice runs when the stall leaves time for those before it: each with a probability of its own.
TEST(UnevenWorkers, AnytimeExamplesOfExponentialStallsAreASumOfProbabilities) {
  constexpr int kWorkers = 10;
  constexpr std::int64_t kSteps = 20'000, kSlice = 22, kSlices = 16;
  constexpr double kShift = 0.2, kMean = 1, kLimit = 6.2, kSliceSeconds = kSlice * 0.02;
  double mean = kSlice, second = 0, before = 1;
  for (int slice = 1; slice <= kSlices; ++slice) {
    const double left = kLimit - slice * kSliceSeconds - kShift;
    const double runs = slice < kSlices && left > 0 ? 1 - std::exp(-left / kMean) : 0;
    mean += kSlice * runs;
    second += std::pow(slice * kSlice, 2) * (before - runs);  // exactly so many slices
    before = runs;
  }
  const UnevenResult found = simulate_uneven_workers(
      anytime(exponential(request_of("amb", kWorkers, 356, 0.02, kSteps), kShift, kMean), kLimit, kSlices));
  const double error = std::sqrt((second - mean * mean) / (kWorkers * kSteps));
  EXPECT_NEAR(found.examples_of_a_push(), mean, 4 * error);
  EXPECT_LT(error, 0.01 * mean);
  EXPECT_EQ(found.most_examples, 308) << "the fifteenth does not begin: 14 x 0.44 + 0.2 is past 6.2";
}

// Renewal theory: a worker that never waits pushes once in its mean time.
TEST(UnevenWorkers, TheAsynchronousRateIsTheSumOfTheRatesOfTheWorkers) {
  UnevenRequest request = exponential(request_of("asp", 5, 50, 0, 200'000), 0.1, 0.8);
  request.seconds_per_example = {0.01, 0.02, 0.03, 0.05, 0.2};
  double rate = 0;
  for (const double s : request.seconds_per_example) rate += 1 / (50 * s + 0.1 + 0.8);
  const UnevenResult found = simulate_uneven_workers(request);
  EXPECT_NEAR(found.steps_per_s(), rate, 0.005 * rate);
  EXPECT_NEAR(found.examples_per_s(), 50 * rate, 0.005 * 50 * rate);
  EXPECT_EQ(found.pushes, found.steps);
  double mean_staleness = 0;
  for (const auto& [staleness, pushes] : found.staleness)
    mean_staleness += static_cast<double>(staleness * pushes) / static_cast<double>(found.pushes);
  EXPECT_NEAR(mean_staleness, 4, 0.01) << "of N workers that never wait N - 1 compute beside each push (Little's law)";
}

// Exponentials forget how long they have run: K of N come after mean x (1/N + .. + 1/(N-K+1)), whoever was late before.
TEST(UnevenWorkers, AQuorumOfExponentialsIsAnOrderStatistic) {
  constexpr std::int64_t kSteps = 40'000;
  for (const int quorum : {1, 3, 6, 10}) {
    UnevenRequest request = exponential(request_of("quorum", 10, 1, 1e-9, kSteps), 0, 2);
    request.quorum = quorum;
    const double mean = 2 * (harmonic(10) - harmonic(10 - quorum));
    const double deviation = 2 * std::sqrt((harmonic(10, 2) - harmonic(10 - quorum, 2)) / kSteps);
    const UnevenResult found = simulate_uneven_workers(request);
    EXPECT_NEAR(found.step_s(), mean, 4 * deviation) << quorum;
    EXPECT_EQ(found.pushes, quorum * kSteps);
  }
}

UnevenRequest stalling_on_ec2(const std::string& sync, std::int64_t steps) {
  UnevenRequest request = request_of(sync, 6, 40, 0.02, steps);
  request.induce = "ec2";
  request.seed = 12;
  return request;
}

// When push k of each worker ends, from 0: it begins when the worker's own last one has ended, and everybody's push
// k - s - 1. A recursion over maxima, with no events. Sorted, these are the updates.
std::vector<Nanoseconds> ends_of_bounded_pushes(const UnevenRequest& request, std::int64_t staleness) {
  const Stragglers stragglers({.kind = request.induce, .seed = request.seed});
  const std::int64_t pushes = 2 * request.steps / request.workers + staleness;
  std::vector<Nanoseconds> ends, slowest;  // [push]: of all workers
  std::vector<Nanoseconds> own(static_cast<std::size_t>(request.workers), 0);
  for (std::int64_t k = 0; k < pushes; ++k) {
    const Nanoseconds bound = k > staleness ? slowest[static_cast<std::size_t>(k - staleness - 1)] : 0;
    for (int w = 0; w < request.workers; ++w) {
      Nanoseconds& end = own[static_cast<std::size_t>(w)];
      end = std::max(end, bound) + from_s(stragglers.stall_s(WorkerId{w}, k)) +
            from_s(static_cast<double>(request.base_batch) * request.seconds_per_example[0]);
      ends.push_back(end);
    }
    slowest.push_back(std::ranges::max(own));
  }
  std::ranges::sort(ends);
  return ends;
}

TEST(UnevenWorkers, StaleSynchronousPushesEndWhenTheRecursionSays) {
  Nanoseconds before = 0;
  for (const std::int64_t bound : {50, 8, 3, 1, 0}) {
    UnevenRequest request = stalling_on_ec2("ssp", 3000);
    request.staleness = bound;
    const UnevenResult found = simulate_uneven_workers(request);
    EXPECT_EQ(found.time, ends_of_bounded_pushes(request, bound)[2999]) << bound;
    EXPECT_GE(found.time, before) << "a tighter bound waits more";
    before = found.time;
    // A worker that computes is at most s behind what the others had, who may go s + 1 beyond its own clock.
    EXPECT_LE(found.staleness.rbegin()->first, 5 * (2 * bound + 1));
  }
}

TEST(UnevenWorkers, PoliciesMeetAtTheirEnds) {
  const UnevenResult asp = simulate_uneven_workers(stalling_on_ec2("asp", 1200));
  const UnevenResult fmb = simulate_uneven_workers(stalling_on_ec2("fmb", 200));
  UnevenRequest request = stalling_on_ec2("ssp", 1200);
  request.staleness = 0;
  const UnevenResult in_step = simulate_uneven_workers(request);
  EXPECT_EQ(in_step.time, fmb.time) << "nobody begins before all have pushed, only the updates are smaller";
  request.staleness = 1'000'000;
  EXPECT_EQ(simulate_uneven_workers(request).time, asp.time);
  request = stalling_on_ec2("quorum", 1200);
  request.quorum = 1;
  const UnevenResult any = simulate_uneven_workers(request);
  EXPECT_EQ(any.time, asp.time);
  EXPECT_EQ(any.staleness, asp.staleness);
  request = stalling_on_ec2("quorum", 200);
  request.quorum = 6;
  EXPECT_EQ(simulate_uneven_workers(request).time, fmb.time);
  request = anytime(stalling_on_ec2("amb", 200), 1e6, 1);
  EXPECT_EQ(simulate_uneven_workers(request).time, fmb.time) << "a step of one slice cannot be cut";
}

TEST(UnevenWorkers, AQuorumIsBetweenAsynchronousAndFixed) {
  double before = simulate_uneven_workers(stalling_on_ec2("asp", 3000)).step_s();
  for (int quorum = 2; quorum <= 5; ++quorum) {
    UnevenRequest request = stalling_on_ec2("quorum", 3000);
    request.quorum = quorum;
    const double step_s = simulate_uneven_workers(request).step_s();
    EXPECT_GT(step_s, before) << quorum;
    before = step_s;
  }
  EXPECT_LT(before, simulate_uneven_workers(stalling_on_ec2("fmb", 3000)).step_s());
  UnevenRequest half = stalling_on_ec2("quorum", 300), four = half;
  four.quorum = 4;
  EXPECT_EQ(simulate_uneven_workers(half).time, simulate_uneven_workers(four).time) << "more than half, by default";
}

TEST(UnevenWorkers, AnytimeGoesOverTheLimitByASliceAtMost) {
  for (const double limit : {0.3, 2.0, 6.6, 9.0}) {
    for (const std::int64_t partitions : {2, 5, 40}) {
      const double slice_s = static_cast<double>(400 / partitions) * 0.03;
      UnevenRequest request = anytime(request_of("amb", 8, 400, 0.03, 400), limit, partitions);
      request.induce = "ec2";
      const UnevenResult found = simulate_uneven_workers(request);
      EXPECT_LE(to_s(found.longest_push), std::max(limit, 6.5) + slice_s + 1e-9) << "a stall is at most 6.5 s";
      request.induce = "none";
      EXPECT_LE(to_s(simulate_uneven_workers(request).longest_push), limit + slice_s + 1e-9);
    }
  }
}

struct Component {
  double mean, deviation, weight;
};
using Published = std::array<Component, 4>;  // github.com/thadikari/anytime: |N(mean, deviation)|, one of four
constexpr Published kPublishedEc2{{{0, 0, 0.4}, {0, 0.4, 0.3}, {2, 0.3, 0.2}, {5, 0.3, 0.1}}};
constexpr Published kPublishedCedar{{{0, 0, 0.4}, {0.05, 0.04, 0.3}, {0.15, 0.03, 0.2}, {0.25, 0.03, 0.1}}};

struct Drawn {
  double fixed_s = 0;           // of the slowest
  double anytime_s = 0;         // likewise
  double anytime_examples = 0;  // mean of a worker
};

// Beside it, and with numbers of another generator: what steps of ten workers come to.
Drawn drawn_from(const Published& published, double limit_s, double example_s, int steps) {
  std::mt19937_64 numbers(99);
  std::discrete_distribution<std::size_t> which{published[0].weight, published[1].weight, published[2].weight,
                                                published[3].weight};
  std::normal_distribution<double> normal;
  Drawn mean;
  for (int step = 0; step < steps; ++step) {
    double longest = 0, anytime_longest = 0;
    for (int w = 0; w < 10; ++w) {
      const Component& one = published[which(numbers)];
      const double stall = std::min(6.5, std::abs(one.mean + one.deviation * normal(numbers)));
      const double slices = std::clamp(std::ceil((limit_s - stall) / (22 * example_s)), 1.0, 16.0);
      longest = std::max(longest, stall);
      anytime_longest = std::max(anytime_longest, stall + slices * 22 * example_s);
      mean.anytime_examples += slices * 22 / (10.0 * steps);
    }
    mean.fixed_s += (longest + 242 * example_s) / steps;
    mean.anytime_s += anytime_longest / steps;
  }
  return mean;
}

void expect_drawn(const std::string& induce, const Published& published, double limit_s, double example_s) {
  constexpr int kSteps = 20'000;
  const Drawn drawn = drawn_from(published, limit_s, example_s, kSteps);
  UnevenRequest request = request_of("fmb", 10, 242, example_s, kSteps);
  request.induce = induce;
  EXPECT_NEAR(simulate_uneven_workers(request).step_s(), drawn.fixed_s, 0.005 * drawn.fixed_s) << induce;
  request.base_batch = 356;
  const UnevenResult amb = simulate_uneven_workers(anytime(request, limit_s, 16));
  EXPECT_NEAR(amb.step_s(), drawn.anytime_s, 0.005 * drawn.anytime_s) << induce;
  EXPECT_NEAR(amb.examples_of_a_push(), drawn.anytime_examples, 0.005 * drawn.anytime_examples) << induce;
}

TEST(UnevenWorkers, PublishedMixturesGiveWhatAnotherGeneratorDraws) {
  expect_drawn("ec2", kPublishedEc2, 6.2, 0.02236);
  expect_drawn("cedar", kPublishedCedar, 0.4, 0.002);
}

// Recorded on EC2, ten workers: a fixed batch of 242, whose slowest takes 9.44 s, or 16 slices of 22 within 6.2 s:
// 242.8 and 243.4 examples of a worker, 22 to 286, and 1.39 times as many steps a second (with what sending takes).
TEST(UnevenWorkers, TheRecordedRunsOnEc2) {
  constexpr double kLongestStall = 4.03;  // mean of the longest of ten
  UnevenRequest request = request_of("fmb", 10, 242, (9.44 - kLongestStall) / 242, 5000);
  request.induce = "ec2";
  request.seed = 4;
  const UnevenResult fmb = simulate_uneven_workers(request);
  EXPECT_NEAR(fmb.slowest_worker_s(), 9.44, 0.01 * 9.44);
  request.base_batch = 356;
  const UnevenResult amb = simulate_uneven_workers(anytime(request, 6.2, 16));
  EXPECT_NEAR(amb.examples_of_a_push(), 243.1, 0.01 * 243.1);
  EXPECT_EQ(amb.least_examples, 22);
  EXPECT_EQ(amb.most_examples, 286);
  EXPECT_NEAR(amb.steps_per_s() / fmb.steps_per_s(), 1.39, 0.07);
}

TEST(UnevenWorkers, AreAFunctionOfTheSeed) {
  for (const std::string& sync : uneven_sync_names()) {
    UnevenRequest request = stalling_on_ec2(sync, 300);
    if (sync == "amb") request = anytime(request, 1, 4);
    const UnevenResult one = simulate_uneven_workers(request), again = simulate_uneven_workers(request);
    EXPECT_EQ(one.time, again.time) << sync;
    EXPECT_EQ(one.examples, again.examples);
    EXPECT_EQ(one.slowest, again.slowest);
    EXPECT_EQ(one.staleness, again.staleness);
    request.seed = 13;
    EXPECT_NE(simulate_uneven_workers(request).time, one.time) << sync;
  }
}

TEST(UnevenWorkers, DoNotDependOnTheirOrder) {
  for (const std::string& sync : uneven_sync_names()) {
    UnevenRequest request = request_of(sync, 5, 64, 0, 700);
    // Nearly no common divisors: if two pushes ended at the same time, the workers' order would decide.
    request.seconds_per_example = {0.0101003, 0.0203017, 0.0307131, 0.0409071, 0.1013219};
    if (sync == "amb") request = anytime(request, 1.1, 8);
    const UnevenResult one = simulate_uneven_workers(request);
    std::ranges::reverse(request.seconds_per_example);
    std::swap(request.seconds_per_example[1], request.seconds_per_example[3]);
    const UnevenResult other = simulate_uneven_workers(request);
    EXPECT_EQ(one.time, other.time) << sync;
    EXPECT_EQ(one.examples, other.examples);
    EXPECT_EQ(one.slowest, other.slowest);
  }
}

}  // namespace
}  // namespace sluice::ps
