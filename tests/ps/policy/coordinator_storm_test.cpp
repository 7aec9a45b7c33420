#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "ps/policy/coordinator.h"
#include "pushes.h"

namespace sluice::ps {
namespace {

// Random speeds, losses during a step, returns, and late pushes of an earlier incarnation, checked by counting.
class Storm {
 public:
  Storm(const SyncPolicy& policy, unsigned seed) : policy_(policy), coordinator_(policy), random_(seed) {
    for (int w = 0; w < policy.workers; ++w) join(w);
  }

  void go_on() {
    const int w = static_cast<int>(random_() % policy_.workers);
    now_ += static_cast<Nanoseconds>(random_() % 5);
    Worker& worker = workers_[w];
    if (!worker.is_here) {
      if (random_() % 4 == 0) join(w);
    } else if (random_() % 64 == 0) {
      leave(w);
    } else if (worker.begun) {
      if (random_() % (w + 1) == 0) push(w);  // the first ones are the fastest
    } else if (coordinator_.may_begin(WorkerId{w})) {
      begin(w);
    }
    update();
  }
  [[nodiscard]] std::int64_t versions() const { return version_; }
  [[nodiscard]] std::int64_t pushes(int w) { return workers_[w].all; }
  [[nodiscard]] std::int64_t late() const { return late_; }

 private:
  struct Worker {
    bool is_here = false;
    int incarnation = 0;
    std::int64_t next = 1, all = 0, since = 0;  // since anybody joined or left
    std::optional<std::int64_t> begun;
  };

  void members_have_changed() {
    for (auto& [w, worker] : workers_) worker.since = 0;
  }
  void join(int w) {
    Worker& worker = workers_[w];
    ASSERT_EQ(coordinator_.join(WorkerId{w}, now_), ++worker.incarnation);
    worker = {.is_here = true, .incarnation = worker.incarnation, .all = worker.all};
    members_have_changed();
  }
  void leave(int w) {
    Worker& worker = workers_[w];
    coordinator_.leave(WorkerId{w}, now_);
    if (worker.begun) on_the_way_.push_back(push_of(w, worker.next, *worker.begun, worker.incarnation));
    worker.is_here = false;
    worker.begun.reset();
    members_have_changed();
  }
  void begin(int w) {
    ASSERT_FALSE(waiting_.contains({w, workers_[w].incarnation}));
    // No worker was more than bound + 1 ahead when the members changed.
    if (policy_.staleness != kUnbounded) {
      for (const auto& [other, worker] : workers_) {
        if (worker.is_here) {
          ASSERT_LE(workers_[w].since - worker.since, 2 * policy_.staleness + 1);
        }
      }
    }
    workers_[w].begun = coordinator_.begin(WorkerId{w});
    ASSERT_EQ(workers_[w].begun, version_);
  }
  void push(int w) {
    Worker& worker = workers_[w];
    ASSERT_EQ(coordinator_.push(push_of(w, worker.next, *worker.begun, worker.incarnation), now_),
              PushAnswer::kCommitted);
    waiting_[{w, worker.incarnation}] = worker.next++;
    ++worker.all;
    ++worker.since;
    worker.begun.reset();
  }
  void update() {
    if (!on_the_way_.empty() && random_() % 8 == 0) {
      ASSERT_EQ(coordinator_.push(on_the_way_.back(), now_), PushAnswer::kUnknown);
      on_the_way_.pop_back();
      ++late_;
    }
    while (const auto made = coordinator_.take_update(now_)) {
      ASSERT_EQ(made->version, ++version_);
      std::map<std::pair<int, int>, std::int64_t> pushes;
      for (const PushRecord& record : made->pushes)
        pushes[{static_cast<int>(record.worker), record.incarnation}] = record.sequence;
      ASSERT_EQ(pushes, waiting_) << "what was pushed since the last update, each once";
      waiting_.clear();
    }
  }

  SyncPolicy policy_;
  Coordinator coordinator_;
  std::mt19937 random_;
  Nanoseconds now_ = 0;
  std::int64_t version_ = 0, late_ = 0;
  std::map<int, Worker> workers_;
  std::map<std::pair<int, int>, std::int64_t> waiting_;  // by worker and incarnation
  std::vector<PushRecord> on_the_way_;                   // of earlier incarnations
};

TEST(Coordinator, RandomDeathsAndReturnsLoseNothingAndHoldTheBound) {
  for (const std::int64_t bound : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{10}}) {
    for (const int quorum : {0, 1, 2, 5}) {
      const SyncPolicy policy{.workers = 5, .quorum = quorum, .grace = quorum == 2 ? 7 : 0, .staleness = bound};
      Storm storm(policy, static_cast<unsigned>(17 * bound + quorum));
      for (int event = 0; event < 20'000 && !testing::Test::HasFatalFailure(); ++event) storm.go_on();
      EXPECT_GT(storm.versions(), 350) << "bound " << bound << ", quorum " << quorum << ": nobody is held up";
      EXPECT_GT(storm.late(), 10);
    }
  }
}

TEST(Coordinator, WithoutABoundTheFastestRunAhead) {
  Storm storm({.workers = 5, .quorum = 1}, 3);
  for (int event = 0; event < 20'000 && !testing::Test::HasFatalFailure(); ++event) storm.go_on();
  EXPECT_GT(storm.pushes(0), 3 * storm.pushes(4) / 2);
}

}  // namespace
}  // namespace sluice::ps
