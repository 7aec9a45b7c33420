#include "data/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/error.h"
#include "data/sampler.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;

TEST(Ledger, LeasesTheOrderOfTheEpochAndThenTheNext) {
  Ledger ledger({.seed = 3, .samples = 10});
  const auto order = epoch_order(3, 0, 10);
  EXPECT_THAT(ledger.lease(4)->samples, testing::ElementsAreArray(order.begin(), order.begin() + 4));
  EXPECT_THAT(ledger.lease(4)->samples, testing::ElementsAreArray(order.begin() + 4, order.begin() + 8));
  const auto last = ledger.lease(4);
  EXPECT_THAT(last->samples, testing::ElementsAreArray(order.begin() + 8, order.end())) << "never of two epochs";
  const auto next = ledger.lease(4);
  EXPECT_EQ(next->epoch, 1);
  EXPECT_EQ(next->samples.front(), epoch_order(3, 1, 10).front());
  EXPECT_EQ(ledger.epochs_over(), 0) << "nothing was pushed";
}

TEST(Ledger, WhatComesBackIsLeasedBeforeAnythingNew) {
  Ledger ledger({.samples = 8, .shuffle = false, .epochs = 2});
  const auto first = ledger.lease(4), second = ledger.lease(3);
  ledger.push(first->id, {0, 2});
  EXPECT_EQ(ledger.counts(0), (LedgerCounts{.waiting = 3, .leased = 3, .pushed = 2}));
  EXPECT_THAT(ledger.lease(2)->samples, ElementsAre(1, 3));
  ledger.give_back(second->id);
  const auto rest = ledger.lease(100);
  EXPECT_THAT(rest->samples, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(rest->epoch, 0);
}

TEST(Ledger, SamplesOfAnEpochComeBackAfterTheNextHasBegun) {
  Ledger ledger({.samples = 4, .shuffle = false});
  const auto late = ledger.lease(4);
  const auto next = ledger.lease(2);
  EXPECT_EQ(next->epoch, 1);
  ledger.give_back(late->id);
  EXPECT_EQ(ledger.lease(4)->epoch, 0) << "its augmentation is that of its own epoch";
  EXPECT_EQ(ledger.lease(4)->epoch, 1);
}

TEST(Ledger, EndsAfterTheLastEpochUnlessSomethingComesBack) {
  Ledger ledger({.samples = 3, .epochs = 1});
  const auto all = ledger.lease(3);
  EXPECT_FALSE(ledger.lease(1));
  ledger.push(all->id, {0});
  EXPECT_EQ(ledger.lease(9)->samples.size(), 2U);
  EXPECT_FALSE(ledger.lease(1));
}

TEST(Ledger, WhatIsLostIsReportedAndNotTrainedOnAgain) {
  Ledger ledger({.samples = 4, .epochs = 1});
  const auto lost = ledger.lease(1), pushed = ledger.lease(3);
  ledger.lose(lost->id);
  ledger.push_all(pushed->id);
  EXPECT_EQ(ledger.counts(0), (LedgerCounts{.pushed = 3, .lost = 1}));
  EXPECT_EQ(ledger.epochs_over(), 1);
  EXPECT_FALSE(ledger.lease(1));
}

TEST(Ledger, TheLastLeaseOfAnEpochTakesTheSmallRest) {
  Ledger ledger({.seed = 1, .samples = 23, .slack = 3});
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 6; ++i) sizes.push_back(ledger.lease(10)->samples.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{10, 13, 10, 13, 10, 13}));
  Ledger other({.seed = 1, .samples = 24, .slack = 3});
  sizes.clear();
  for (int i = 0; i < 3; ++i) sizes.push_back(other.lease(10)->samples.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{10, 10, 4}));
}

TEST(Ledger, RefusesWhatIsNotOut) {
  Ledger ledger({.samples = 4});
  const auto lease = ledger.lease(2);
  ledger.push_all(lease->id);
  EXPECT_THROW(ledger.push_all(lease->id), BugError) << "twice";
  EXPECT_THROW(ledger.give_back(LeaseId{99}), BugError);
  const auto other = ledger.lease(2);
  EXPECT_THROW(ledger.push(other->id, {2}), BugError) << "it has no such position";
  EXPECT_THROW((void)ledger.lease(0), BugError);
}

// Workers that push parts, die and lose samples; tracks the fate of every sample.
class LedgerStorm {
 public:
  static constexpr std::int64_t kSamples = 57, kEpochs = 6;

  void run() {
    for (;;) {
      if (random_() % 2 == 0 || out_.empty()) {
        auto lease = ledger_.lease(1 + static_cast<std::int64_t>(random_() % 9));
        if (lease)
          out_.push_back(std::move(*lease));
        else if (out_.empty())
          return;
      }
      if (!out_.empty() && random_() % 3 != 0) end_one();
    }
  }
  const Ledger& ledger() const { return ledger_; }
  const std::map<std::int64_t, int>& ended(std::int64_t epoch) const { return ended_[epoch]; }
  std::int64_t lost() const { return lost_; }

 private:
  void end_one() {
    std::swap(out_[random_() % out_.size()], out_.back());
    const Lease lease = std::move(out_.back());
    out_.pop_back();
    const auto fate = random_() % 8;
    if (fate == 0) return ledger_.give_back(lease.id);
    if (fate == 1) {
      ledger_.lose(lease.id);
      lost_ += std::ssize(lease.samples);
    }
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < std::ssize(lease.samples); ++i) {
      if (fate != 1 && random_() % 4 == 0) continue;
      positions.push_back(i);
      ++ended_[lease.epoch][lease.samples[i]];
    }
    if (fate != 1) ledger_.push(lease.id, positions);
  }

  std::mt19937 random_{8};
  Ledger ledger_{{.seed = 1, .samples = kSamples, .epochs = kEpochs}};
  std::vector<std::map<std::int64_t, int>> ended_{kEpochs};  // [epoch]: how often a sample was pushed or lost
  std::vector<Lease> out_;
  std::int64_t lost_ = 0;
};

TEST(Ledger, AccountsForEverySampleOfEveryEpoch) {
  LedgerStorm storm;
  storm.run();
  EXPECT_GT(storm.lost(), 0);
  EXPECT_EQ(storm.ledger().epochs_over(), LedgerStorm::kEpochs);
  for (std::int64_t epoch = 0; epoch < LedgerStorm::kEpochs; ++epoch) {
    EXPECT_EQ(std::ssize(storm.ended(epoch)), LedgerStorm::kSamples);
    for (const auto& [sample, times] : storm.ended(epoch)) EXPECT_EQ(times, 1) << sample;
    const LedgerCounts counts = storm.ledger().counts(epoch);
    EXPECT_EQ(counts.pushed + counts.lost, LedgerStorm::kSamples);
  }
}

// A run stops at any moment and continues from its last state. Leased samples return, and none is trained on twice.
TEST(Ledger, ContinuesFromAnyOfItsStates) {
  constexpr std::int64_t kSamples = 41, kEpochs = 5;
  const LedgerOptions options{.seed = 2, .samples = kSamples, .epochs = kEpochs};
  std::mt19937 random(5);
  Ledger ledger(options);
  std::vector<std::map<std::int64_t, int>> pushed(kEpochs);
  std::vector<Lease> out;
  int restarts = 0;
  for (;;) {
    if (random() % 7 == 0) {
      const LedgerState state = ledger.state();
      ASSERT_TRUE(is_sound(state, options));
      ledger = Ledger(options, state);
      out.clear();
      ++restarts;
      EXPECT_EQ(ledger.leases_out(), 0);
    }
    auto lease = ledger.lease(1 + static_cast<std::int64_t>(random() % 6));
    if (lease) out.push_back(std::move(*lease));
    if (out.empty()) break;
    if (random() % 2 == 0) continue;
    std::swap(out[random() % out.size()], out.back());
    for (const std::int64_t sample : out.back().samples) ++pushed[out.back().epoch][sample];
    ledger.push_all(out.back().id);
    out.pop_back();
  }
  EXPECT_GT(restarts, 5);
  EXPECT_EQ(ledger.epochs_over(), kEpochs);
  for (const auto& epoch : pushed) {
    EXPECT_EQ(std::ssize(epoch), kSamples);
    for (const auto& [sample, times] : epoch) EXPECT_EQ(times, 1) << sample;
  }
}

TEST(Ledger, LeasesReturnedSamplesFirst) {
  const LedgerOptions options{.seed = 2, .samples = 12};
  Ledger ledger(options);
  const Lease first = *ledger.lease(3), second = *ledger.lease(3), third = *ledger.lease(3);
  ledger.push_all(second.id);
  Ledger next(options, ledger.state());
  EXPECT_EQ(next.counts(0), (LedgerCounts{.waiting = 9, .pushed = 3}));
  EXPECT_EQ(next.lease(3)->samples, first.samples);
  EXPECT_EQ(next.lease(3)->samples, third.samples);
  EXPECT_EQ(next.lease(12)->samples, ledger.lease(12)->samples);
}

TEST(Ledger, OnlySamplesPushedAfterAStateAreLeasedAgain) {
  const LedgerOptions options{.seed = 2, .samples = 12};
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    std::mt19937 random(seed);
    Ledger ledger(options);
    std::vector<Lease> out, pushed;
    LedgerState state;
    std::size_t pushed_before = 0;
    for (int event = 0; event < 300; ++event) {
      if (event == 80) state = ledger.state();
      if (event == 80) pushed_before = pushed.size();
      if (out.size() < 3) {
        out.push_back(*ledger.lease(1 + random() % 4));
        continue;
      }
      const std::size_t which = random() % out.size();
      Lease lease = out[which];
      out.erase(out.begin() + static_cast<std::ptrdiff_t>(which));
      const std::size_t ran = random() % (lease.samples.size() + 1);
      ledger.push_first(lease.id, static_cast<std::int64_t>(ran));
      lease.samples.resize(ran);
      pushed.push_back(lease);
    }
    Ledger again(options, state);
    for (std::size_t i = pushed_before; i < pushed.size(); ++i) {
      const auto lease = again.lease_again(pushed[i].epoch, pushed[i].samples);
      ASSERT_TRUE(lease) << seed << " " << i;
      EXPECT_EQ(lease->samples, pushed[i].samples);
      again.push_all(lease->id);
    }
    ASSERT_GT(ledger.epochs_over(), 1);
    for (std::int64_t epoch = 0; epoch < ledger.epochs_over() + 3; ++epoch) {
      const LedgerCounts ours = again.counts(epoch), theirs = ledger.counts(epoch);
      EXPECT_EQ(ours.pushed, theirs.pushed) << epoch;
      EXPECT_EQ(ours.waiting, theirs.waiting + theirs.leased) << epoch;
    }
    EXPECT_TRUE(is_sound(again.state(), options));
    for (const Lease& lease : pushed) {
      const bool is_leased = again.lease_again(lease.epoch, lease.samples).has_value();
      EXPECT_FALSE(is_leased && !lease.samples.empty()) << "it was pushed";
    }
  }
}

TEST(Ledger, SamplesThatDoNotWaitAreNotLeasedAgain) {
  const LedgerOptions options{.samples = 6, .shuffle = false, .epochs = 2};
  const auto fresh = [&] { return Ledger(options); };
  EXPECT_FALSE(fresh().lease_again(0, {6}));
  EXPECT_FALSE(fresh().lease_again(0, {1, 1}));
  EXPECT_FALSE(fresh().lease_again(2, {1})) << "after the last epoch";
  EXPECT_FALSE(fresh().lease_again(-1, {1}));
  Ledger ledger = fresh();
  ASSERT_TRUE(ledger.lease_again(0, {3, 1}));
  EXPECT_FALSE(ledger.lease_again(0, {1}));
  Ledger other = fresh();
  ASSERT_TRUE(other.lease_again(0, {3}));
  EXPECT_THAT(other.lease(3)->samples, ElementsAre(0, 1, 2)) << "those before it come first";
  EXPECT_THAT(other.lease(3)->samples, ElementsAre(4, 5));
}

TEST(Ledger, StatesThatCannotBeAreNotSound) {
  const LedgerOptions options{.seed = 2, .samples = 12};
  Ledger ledger(options);
  const Lease lease = *ledger.lease(5);
  ledger.push(lease.id, {0, 2});
  const LedgerState good = ledger.state();
  ASSERT_TRUE(is_sound(good, options));
  const auto is_sound_with = [&](const auto& change) {
    LedgerState state = good;
    change(state);
    return is_sound(state, options);
  };
  EXPECT_FALSE(is_sound_with([](LedgerState& state) { state.first = -1; }));
  EXPECT_FALSE(is_sound_with([](LedgerState& state) { state.open[0].next = 13; }));
  EXPECT_FALSE(is_sound_with([](LedgerState& state) { ++state.open[0].pushed; }));
  EXPECT_FALSE(is_sound_with([](LedgerState& state) { state.open[0].returned.pop_back(); }));
  EXPECT_FALSE(is_sound_with([](LedgerState& state) { state.open[0].returned[0] = state.open[0].returned[1]; }));
  EXPECT_FALSE(is_sound_with([](LedgerState& state) { state.open[0].returned[0] = 12; }));
  EXPECT_FALSE(is_sound_with([](LedgerState& state) { ++state.first; })) << "of another epoch's order";
  EXPECT_FALSE(is_sound(good, {.seed = 2, .samples = 13}));
}

// A worker that is one step ahead may leave first. Its samples must not precede those of the step before.
TEST(Ledger, AResumedRunLeasesInTheOrderOfTheEpoch) {
  const LedgerOptions options{.seed = 5, .samples = 24};
  Ledger ledger(options);
  std::vector<Lease> leases;
  for (int i = 0; i < 4; ++i) leases.push_back(*ledger.lease(4));
  ledger.push_all(leases[0].id);
  for (const int i : {3, 1, 2}) ledger.give_back(leases[i].id);
  Ledger next(options, ledger.state());
  for (const int i : {1, 2, 3}) EXPECT_EQ(next.lease(4)->samples, leases[i].samples) << i;
}

}  // namespace
}  // namespace sluice::data
