// Which sequence of calls each record is of, by records made here.
#include "profiler/cupti/sequence_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace sluice::cupti {
namespace {

using testing::ElementsAre;
using Times = std::vector<std::optional<Nanoseconds>>;

// Two sequences; before each the queue is delayed.
const std::vector<SequenceSpan> kSpans{{.begin = 100, .end = 200, .idle = 1000},
                                       {.begin = 2000, .end = 2100, .idle = 3000}};

void add(Records& records, std::uint32_t correlation, Nanoseconds launch, Nanoseconds begin, Nanoseconds end) {
  records.work.push_back({.correlation = correlation, .where = {0, 7}, .begin = begin, .end = end});
  if (launch >= 0) records.launches.push_back({.correlation = correlation, .begin = launch, .end = launch + 1});
}

TEST(SequenceKernels, BelongToTheSequenceThatLaunchedThem) {
  Records records;
  add(records, 1, 50, 60, 400);  // the delay
  add(records, 2, 100, 410, 450);
  add(records, 3, 200, 500, 501);
  add(records, 4, 1500, 1510, 2500);  // the next one
  add(records, 5, 2050, 2500, 2560);
  add(records, 6, 2101, 2600, 2700);  // after the last call
  EXPECT_THAT(sequence_kernels(records, kSpans), ElementsAre(41, 60));
}

TEST(SequenceKernels, CountCopiesAndSettingsOfMemoryAndTheKernelsOfOneLaunch) {
  Records records;
  add(records, 1, 150, 300, 310);
  add(records, 2, 160, 310, 330);
  records.work.back().kind = WorkKind::kCopy;
  add(records, 3, 170, 340, 345);
  records.work.back().kind = WorkKind::kSet;
  add(records, 1, 150, 350, 351);
  EXPECT_THAT(sequence_kernels(records, kSpans), ElementsAre(36, 0));
}

TEST(SequenceKernels, WithoutALaunchBelongToTheOneInWhichTheyBegan) {
  Records records;
  add(records, 1, -1, 150, 160);
  add(records, 2, -1, 1000, 1005);  // as late as may be
  add(records, 3, -1, 1001, 1500);  // of none
  add(records, 4, -1, 2900, 2930);
  EXPECT_THAT(sequence_kernels(records, kSpans), ElementsAre(15, 30));
}

TEST(SequenceKernels, WithoutTimesMakeTheirSequenceUnknown) {
  Records records;
  add(records, 1, 150, 300, 310);
  add(records, 2, 150, 0, 0);
  add(records, 3, 150, 310, 320);
  add(records, 4, 2010, 2020, 2025);
  EXPECT_EQ(sequence_kernels(records, kSpans), (Times{std::nullopt, 5}));
  add(records, 5, -1, 0, 0);
  EXPECT_EQ(sequence_kernels(records, kSpans), (Times{std::nullopt, std::nullopt})) << "it may be of either";
}

TEST(SequenceKernels, ThatWereDroppedMakeAllUnknown) {
  Records records;
  add(records, 1, 150, 300, 310);
  records.dropped = 1;
  EXPECT_EQ(sequence_kernels(records, kSpans), (Times{std::nullopt, std::nullopt}));
}

TEST(SequenceKernels, OfNoSequencesAreNone) {
  Records records;
  add(records, 1, 150, 300, 310);
  EXPECT_TRUE(sequence_kernels(records, {}).empty());
}

// Each record is looked for in each sequence by itself.
TEST(SequenceKernels, AreThoseOfASearchThroughAllSequences) {
  std::mt19937 random(1);
  const auto below = [&](int end) { return static_cast<Nanoseconds>(random() % static_cast<unsigned>(end)); };
  for (int round = 0; round < 200; ++round) {
    std::vector<SequenceSpan> spans;
    Nanoseconds now = 10;
    for (int i = 0; i < 5; ++i) {
      const Nanoseconds begin = now + below(30), end = begin + below(50), idle = end + below(50);
      spans.push_back({begin, end, idle});
      now = idle + 1;
    }
    Records records;
    Times expected(spans.size(), 0);
    for (std::uint32_t i = 0; i < 40; ++i) {
      const bool has_launch = below(4) > 0;
      const Nanoseconds launch = below(500), begin = 1 + launch + below(20), end = begin + below(20);
      add(records, i, has_launch ? launch : -1, begin, end);
      for (std::size_t s = 0; s < spans.size(); ++s) {
        const bool is_its = has_launch ? launch >= spans[s].begin && launch <= spans[s].end
                                       : begin >= spans[s].begin && begin <= spans[s].idle;
        if (is_its) *expected[s] += end - begin;
      }
    }
    EXPECT_EQ(sequence_kernels(records, spans), expected);
  }
}

}  // namespace
}  // namespace sluice::cupti
