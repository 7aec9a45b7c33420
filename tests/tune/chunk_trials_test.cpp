// In what order pipeline.chunks = "auto" tries numbers, and when it stops, with steps of given length.
#include "tune/chunk_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace sluice::tune {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<ChunkCandidate> fitting(const std::vector<int>& numbers) {
  std::vector<ChunkCandidate> candidates;
  for (const int number : numbers) candidates.push_back({.chunks = number});
  return candidates;
}

// Runs them to the end and gives what was asked for, in order. seconds: of a step; nothing: it does not fit.
std::vector<int> run(ChunkTrials& trials, const std::map<int, double>& seconds) {
  std::vector<int> asked;
  while (const auto chunks = trials.next()) {
    asked.push_back(*chunks);
    const auto known = seconds.find(*chunks);
    known != seconds.end() ? trials.took(known->second) : trials.did_not_fit();
    if (asked.size() > 100) ADD_FAILURE() << "it does not end";
    if (asked.size() > 100) break;
  }
  return asked;
}

std::vector<int> numbers_of(const std::vector<ChunkCandidate>& candidates) {
  std::vector<int> numbers;
  for (const ChunkCandidate& candidate : candidates) numbers.push_back(candidate.chunks);
  return numbers;
}

TEST(ChunkTrials, EachIsTriedFromTheStartOutwardsAndThoseNearTheFastestAgain) {
  ChunkTrials trials(fitting({1, 2, 4, 8}), 2, 100);
  EXPECT_THAT(run(trials, {{1, 2.0}, {2, 1.1}, {4, 1.0}, {8, 3.0}}),
              ElementsAre(2, 2, 4, 8, 1,    // 4 is faster: on from there, 8 before 1
                          4, 4, 2, 4, 2));  // four steps each of those that may be the fastest
  EXPECT_EQ(trials.best(), 4);
  EXPECT_EQ(trials.timings(), "1: 2000.0 ms, 2: 1100.0 ms, 4: 1000.0 ms, 8: 3000.0 ms");
  EXPECT_THAT(trials.untried(), IsEmpty());
}

TEST(ChunkTrials, WhenTheBudgetEndsWhatWasMeasuredDecides) {
  ChunkTrials trials(fitting({1, 2, 4, 8, 16}), 2, 6.9);
  EXPECT_THAT(run(trials, {{1, 2.0}, {2, 2.0}, {4, 1.5}, {8, 2.0}, {16, 2.0}}), ElementsAre(2, 2, 4));
  EXPECT_EQ(trials.best(), 4) << "5.5 s are spent, and another 1.5 s would be more than 6.9 s";
  EXPECT_THAT(trials.untried(), ElementsAre(1, 8, 16));
}

TEST(ChunkTrials, OneStepIsTakenHoweverLongAndNoneWithoutABudget) {
  ChunkTrials slow(fitting({1, 2, 4}), 2, 10);
  EXPECT_THAT(run(slow, {{1, 60}, {2, 60}, {4, 60}}), ElementsAre(2));
  EXPECT_EQ(slow.best(), 2);
  EXPECT_THAT(slow.untried(), ElementsAre(1, 4));
  ChunkTrials too_slow(fitting({1, 2, 4}), 2, 10);
  EXPECT_THAT(run(too_slow, {{1, 4}, {2, 4}, {4, 4}}), ElementsAre(2)) << "after a second one nothing could follow";
  ChunkTrials none(fitting({1, 2, 4}), 2, 0);
  EXPECT_THAT(run(none, {}), IsEmpty());
  EXPECT_EQ(none.best(), 2);
  ChunkTrials single(fitting({4}), 2, 10);
  EXPECT_THAT(run(single, {}), IsEmpty());
  EXPECT_EQ(single.best(), 4);
}

TEST(ChunkTrials, WhatDoesNotFitIsPassedOver) {
  ChunkTrials trials(fitting({1, 2, 4}), 1, 3.5);
  EXPECT_THAT(run(trials, {{2, 1.0}, {4, 2.0}}), ElementsAre(1, 2, 2, 4));
  EXPECT_EQ(trials.best(), 2);
  EXPECT_EQ(trials.timings(), "1: does not fit, 2: 1000.0 ms, 4: 2000.0 ms");
  ChunkTrials nothing(fitting({1, 2, 4}), 2, 3);
  EXPECT_THAT(run(nothing, {}), ElementsAre(2, 4, 1));
  EXPECT_EQ(nothing.best(), std::nullopt);
}

TEST(ChunkTrials, WhatIsEstimatedNotToFitIsTriedOnlyUntilSomethingDoes) {
  const std::vector<ChunkCandidate> doubtful{{1, false, 300}, {2, false, 200}, {4, false, 250}};
  ChunkTrials trials(doubtful, 1, 100);
  EXPECT_THAT(run(trials, {{1, 1.0}, {4, 1.0}}), ElementsAre(2, 4, 4, 4, 4)) << "least need first";
  EXPECT_EQ(trials.best(), 4);
  EXPECT_THAT(trials.untried(), IsEmpty());
}

TEST(WorthTrying, WhatFitsAndElseWhatIsNearest) {
  const std::vector<ChunkCandidate> some{{1, false}, {2, true}, {4, true}, {8, true}};
  EXPECT_THAT(numbers_of(worth_trying(some, 4)), ElementsAre(2, 4));
  const std::vector<ChunkCandidate> larger{{1, false}, {2, false}, {4, false}, {8, true}, {16, true}};
  EXPECT_THAT(numbers_of(worth_trying(larger, 2)), ElementsAre(8)) << "more than is of use, but it runs";
  const std::vector<ChunkCandidate> none{{1, false}, {2, false}, {4, false}};
  EXPECT_THAT(numbers_of(worth_trying(none, 2)), ElementsAre(1, 2));
}

TEST(ChunkCandidates, TheFastestByPredictionArePromising) {
  std::vector<ChunkCandidate> all{{.chunks = 1, .predicted_s = 5.0},
                                  {.chunks = 2, .predicted_s = 3.0},
                                  {.chunks = 4, .predicted_s = 1.0},
                                  {.chunks = 8, .predicted_s = 2.0},
                                  {.chunks = 16, .predicted_s = 4.0}};
  EXPECT_THAT(numbers_of(most_promising(all, 3)), ElementsAre(2, 4, 8));
  EXPECT_THAT(numbers_of(most_promising(all, 9)), ElementsAre(1, 2, 4, 8, 16));
  all[1].fits = false;
  EXPECT_THAT(numbers_of(most_promising(all, 3)), ElementsAre(1, 2, 4, 8, 16)) << "what may not fit is for trials";
  all[1].fits = true, all[0].predicted_s.reset();
  EXPECT_THAT(numbers_of(most_promising(all, 3)), ElementsAre(1, 2, 4, 8, 16));
}

TEST(Listed, ReadsAsASentence) {
  EXPECT_EQ(listed({8}), "8");
  EXPECT_EQ(listed({8, 16}), "8 and 16");
  EXPECT_EQ(listed({1, 8, 16}), "1, 8 and 16");
}

}  // namespace
}  // namespace sluice::tune
