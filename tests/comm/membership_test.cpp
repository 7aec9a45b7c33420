// Threads stand in for processes: which group they form after losses, and what the others learn of them.
#include "comm/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/membership_message.h"
#include "comm/own_connections.h"
#include "comm/ranks.h"
#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;
using test::run_ranks;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr LivenessOptions kOften{.heartbeat_interval = milliseconds(50), .peer_timeout = milliseconds(20000)};
constexpr milliseconds kLongest{20000};

class Board {
 public:
  [[nodiscard]] NoticeBoard board() {
    return {.put =
                [this](const std::string& key, const std::string& text) {
                  const std::scoped_lock lock(mutex_);
                  texts_[key] = text;
                  changed_.notify_all();
                },
            .get =
                [this](const std::string& key) {
                  std::unique_lock lock(mutex_);
                  changed_.wait(lock, [&] { return texts_.contains(key); });
                  return texts_[key];
                }};
  }

  // Until `size` processes have called it: one that ends while another one connects ends that one, too.
  void wait_for_all(int size) {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait_for(lock, kLongest, [&] { return arrived_ >= size; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> texts_;
  int arrived_ = 0;
};

struct Process {
  Process(int rank, int size, Board& board)
      : membership(std::make_unique<Membership>(test::world_of(rank, size, /*port=*/1), board.board(), kOften,
                                                [this] { ++disturbances; })) {
    board.wait_for_all(size);
  }

  std::atomic<int> disturbances = 0;
  std::unique_ptr<Membership> membership;
};

TEST(Membership, TheOthersGoOnWithoutAProcessThatDies) {
  Board board;
  std::vector<Group> groups(4);
  const auto errors = run_ranks(4, [&](int rank) {
    Process process(rank, 4, board);
    if (rank == 0) return;  // its destructor ends the connections, as a death does
    EXPECT_TRUE(process.membership->wait_for_disturbance(kLongest));
    groups[rank] = process.membership->regroup(/*steps_done=*/rank == 2 ? 7 : 6);
    EXPECT_EQ(process.disturbances, 1);
    const std::vector<Loss> losses = process.membership->take_news().lost;
    ASSERT_EQ(losses.size(), 1);
    EXPECT_EQ(losses[0].member, 0);
    EXPECT_EQ(losses[0].cause, "its connection ended");
    process.membership->leave();
  });
  EXPECT_THAT(errors, Each(""));
  for (int rank = 1; rank < 4; ++rank)
    EXPECT_EQ(groups[rank], (Group{.number = 1, .members = {1, 2, 3}, .leader = 2, .steps_done = 7}));
}

TEST(Membership, TheLeadersTextReachesItsGroup) {
  Board board;
  const auto errors = run_ranks(3, [&](int rank) {
    Process process(rank, 3, board);
    if (rank == 1) return process.membership->fail("it has no memory left");
    EXPECT_TRUE(process.membership->wait_for_disturbance(kLongest));
    EXPECT_THAT(process.membership->regroup(3).members, ElementsAre(0, 2));
    EXPECT_EQ(process.membership->take_news().lost.at(0).cause, "it has no memory left");
    if (rank == 0) process.membership->publish_text("10.0.0.1 1234");
    if (rank == 2) {
      EXPECT_EQ(process.membership->wait_for_text(), "10.0.0.1 1234");
    }
    process.membership->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Membership, ALossEndsTheWaitForTheLeadersText) {
  Board board;
  const auto errors = run_ranks(2, [&](int rank) {
    Process process(rank, 2, board);
    if (rank == 0) return;
    EXPECT_THROW((void)process.membership->wait_for_text(), PeerError);
    EXPECT_THAT(process.membership->regroup(0).members, ElementsAre(1));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Membership, WithoutAWholeStateNobodyGoesOn) {
  Board board;
  const auto errors = run_ranks(3, [&](int rank) {
    Process process(rank, 3, board);
    if (rank == 2) return;
    EXPECT_TRUE(process.membership->wait_for_disturbance(kLongest));
    (void)process.membership->regroup(kNoState);
  });
  EXPECT_THAT(errors[0], HasSubstr("no process that is left has a whole state"));
  EXPECT_NE(errors[1], "");
}

class Waiting {
 public:
  void open(const Invitation& invitation) { invitation_.set_value(invitation); }
  [[nodiscard]] Invitation wait() const { return shared_.get(); }

 private:
  std::promise<Invitation> invitation_;
  std::shared_future<Invitation> shared_ = invitation_.get_future();
};

void wait_for_guests(const Membership& membership) {
  while (!membership.has_guests()) std::this_thread::sleep_for(milliseconds(1));
}

TEST(Membership, AGuestJoinsWhenAllHaveStopped) {
  Board board;
  Waiting door;
  std::vector<Group> groups(3);
  const auto errors = run_ranks(3, [&](int rank) {
    if (rank == 2) {
      Membership guest(test::world_of(1, 2, /*port=*/1), door.wait(), kOften, [] {});
      EXPECT_EQ(guest.self(), 2);
      groups[2] = guest.regroup(kNoState);
      EXPECT_THAT(guest.take_news().joined, IsEmpty());
      EXPECT_EQ(guest.wait_for_text(), "text of the leader");
      return guest.leave();
    }
    Process process(rank, 2, board);
    if (rank == 1) door.open(process.membership->invitation());  // not the coordinator
    if (rank == 0) wait_for_guests(*process.membership);
    groups[rank] = process.membership->regroup(/*steps_done=*/4);
    EXPECT_FALSE(process.membership->has_guests());
    const auto [losses, newcomers] = process.membership->take_news();
    EXPECT_THAT(losses, IsEmpty());
    ASSERT_EQ(newcomers.size(), 1);
    EXPECT_EQ(newcomers[0].member, 2);
    EXPECT_FALSE(newcomers[0].host.empty());
    EXPECT_GT(newcomers[0].arrived_at, 0);
    if (rank == 0) process.membership->publish_text("text of the leader");
    process.membership->leave();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(groups, Each(Group{.number = 1, .members = {0, 1, 2}, .leader = 0, .steps_done = 4}));
}

TEST(Membership, AGuestThatDiesOrWasStoppedDisturbsNobody) {
  Board board;
  Waiting door;
  const auto errors = run_ranks(3, [&](int rank) {
    if (rank == 2) {
      {
        const Membership dies(test::world_of(1, 2, /*port=*/1), door.wait(), kOften, [] {});
      }
      Membership stopped(test::world_of(1, 2, /*port=*/1), door.wait(), kOften, [] {});
      EXPECT_EQ(stopped.self(), 3);
      return stopped.stop("a signal");
    }
    Process process(rank, 2, board);
    if (rank == 0) door.open(process.membership->invitation());
    EXPECT_FALSE(process.membership->wait_for_disturbance(milliseconds(500)));
    EXPECT_EQ(process.membership->why_stopped(), std::nullopt);
    EXPECT_EQ(process.disturbances, 0);
    process.membership->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Membership, AGuestEndsWithTheRun) {
  Board board;
  Waiting door;
  const auto errors = run_ranks(2, [&](int rank) {
    if (rank == 1) {
      Membership guest(test::world_of(1, 2, /*port=*/1), door.wait(), kOften, [] {});
      (void)guest.regroup(kNoState);
    } else {
      Process process(0, 1, board);
      door.open(process.membership->invitation());
      wait_for_guests(*process.membership);
      process.membership->leave();
    }
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], HasSubstr("all processes of the run have ended"));
}

TEST(Membership, AGuestWithoutTheTokenIsNotWelcome) {
  Board board;
  Waiting door;
  constexpr LivenessOptions kShort{.heartbeat_interval = milliseconds(50),
                                   .peer_timeout = milliseconds(20000),
                                   .connect_timeout = milliseconds(300)};
  const auto errors = run_ranks(2, [&](int rank) {
    if (rank == 1) {
      Invitation wrong = door.wait();
      wrong.token = "guessed";
      const Membership guest(test::world_of(1, 2, /*port=*/1), wrong, kShort, [] {});
    } else {
      Process process(0, 1, board);
      door.open(process.membership->invitation());
      EXPECT_FALSE(process.membership->wait_for_disturbance(milliseconds(500)));
      EXPECT_FALSE(process.membership->has_guests());
    }
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], HasSubstr("refused the connection"));
}

TEST(Membership, APlannedEndIsNoLoss) {
  Board board;
  const auto errors = run_ranks(3, [&](int rank) {
    Process process(rank, 3, board);
    process.membership->leave();
    EXPECT_EQ(process.disturbances, 0);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(MembershipMessage, EachKindSurvivesItsLine) {
  const Group group{.number = 3, .members = {0, 2, 5}, .leader = 2, .steps_done = 41};
  const RegroupMessage ready{.kind = RegroupMessage::Kind::kReady,
                             .number = 2,
                             .steps_done = 40,
                             .group = group,
                             .accepted = Proposal{.coordinator = 1, .attempt = 4, .group = group}};
  const RegroupMessage lost{.kind = RegroupMessage::Kind::kLost, .number = 2, .member = 5, .is_dead = true};
  for (const RegroupMessage& message : {ready, lost}) {
    const auto read = MembershipMessage::from_line(
        MembershipMessage{.kind = MembershipMessage::Kind::kRegroup, .regroup = message}.to_line());
    ASSERT_TRUE(read);
    EXPECT_EQ(read->regroup, message);
  }
  const auto hello = MembershipMessage::from_line(
      MembershipMessage{.kind = MembershipMessage::Kind::kHello, .member = 4, .token = "t", .text = "host"}.to_line());
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->member, 4);
  EXPECT_EQ(hello->token, "t");
  for (const char* line : {"", "{}", "[1]", R"({"say":"what"})", R"({"say":"hello","token":"t"})",
                           R"({"say":"regroup","regroup":{"kind":"lost"}})"})
    EXPECT_FALSE(MembershipMessage::from_line(line)) << line;
}

}  // namespace
}  // namespace sluice::comm
