// Threads stand in for processes: strangers, ranks that do not connect, and which rank receives which report.
#include "comm/liveness.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <future>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "comm/control_message.h"
#include "comm/ranks.h"
#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;
using test::run_ranks;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr LivenessOptions kOptions{.heartbeat_interval = milliseconds(50), .peer_timeout = milliseconds(20000)};
constexpr milliseconds kTimeout{20000};

World world_of(int rank, int size) { return test::world_of(rank, size, /*port=*/1); }

// Passes rank 0's text to the other threads; a test may change it.
class Meeting {
 public:
  [[nodiscard]] MeetingPoint point() {
    return {.publish = [this](const std::string& text) { text_.set_value(text); },
            .look_up = [this] { return text(); }};
  }
  [[nodiscard]] std::string text() const { return shared_.get(); }
  [[nodiscard]] int port() const { return std::stoi(text()); }

 private:
  std::promise<std::string> text_;
  std::shared_future<std::string> shared_ = text_.get_future().share();
};

void nothing_is_lost(const LostProcess& lost) { ADD_FAILURE() << lost.describe(); }

// A connection to rank 0 without the token of the run.
class Stranger {
 public:
  explicit Stranger(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    is_open_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Stranger() { ::close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  [[nodiscard]] bool is_open() const { return is_open_; }
  void send(const std::string& bytes) const { (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  [[nodiscard]] bool is_dropped() const {
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte = 0;
    const ssize_t count = ::recv(fd_, &byte, 1, 0);
    return count == 0 || (count < 0 && errno == ECONNRESET);
  }

 private:
  int fd_;
  bool is_open_ = false;
};

TEST(Liveness, AllLeaveAndNobodyIsLost) {
  for (const int size : {1, 2, 5}) {
    Meeting meeting;
    const auto failures = run_ranks(size, [&](int rank) {
      Liveness liveness(world_of(rank, size), meeting.point(), kOptions, nothing_is_lost);
      std::this_thread::sleep_for(milliseconds(120));
      liveness.leave();
      EXPECT_EQ(liveness.wait_for_lost(milliseconds(0)), std::nullopt);
    });
    EXPECT_THAT(failures, Each(""));
  }
}

TEST(Liveness, TheFirstOfSeveralFailuresIsTheOneThatAllHearOf) {
  constexpr int kSize = 6;
  Meeting meeting;
  std::mutex mutex;
  std::set<int> named;
  std::barrier all_joined(kSize);
  const auto failures = run_ranks(kSize, [&](int rank) {
    std::atomic<int> losses = 0;
    Liveness liveness(world_of(rank, kSize), meeting.point(), kOptions, [&](const LostProcess&) { ++losses; });
    all_joined.arrive_and_wait();
    if (rank >= 3) liveness.fail(concat("at ", rank));  // three at once
    const auto lost = liveness.wait_for_lost(kTimeout);
    ASSERT_TRUE(lost.has_value());
    if (rank < 3) {
      const std::scoped_lock lock(mutex);
      named.insert(lost->rank);
      EXPECT_EQ(lost->reason, concat("at ", lost->rank));
    }
    all_joined.arrive_and_wait();
    EXPECT_EQ(losses, rank < 3 ? 1 : losses.load());
  });
  EXPECT_THAT(failures, Each(""));
  EXPECT_EQ(named.size(), 1) << "the survivors do not name the same rank";
  EXPECT_GE(*named.begin(), 3);
}

TEST(Liveness, GoingWithoutAWordIsADeathAndItsConsequencesAreNone) {
  Meeting meeting;
  std::barrier all_joined(4);
  const auto failures = run_ranks(4, [&](int rank) {
    Liveness liveness(world_of(rank, 4), meeting.point(), kOptions, [](const LostProcess&) {});
    all_joined.arrive_and_wait();
    if (rank == 2) return;
    const auto lost = liveness.wait_for_lost(kTimeout);  // then it goes at once, too
    ASSERT_TRUE(lost.has_value());
    EXPECT_THAT(lost->describe(), AllOf(HasSubstr("rank 2 (host "), HasSubstr(") died")));
  });
  EXPECT_THAT(failures, Each(""));
}

TEST(Liveness, WhoWasAskedToStopHasNotFailed) {
  Meeting meeting;
  std::barrier all_joined(3);
  const auto failures = run_ranks(3, [&](int rank) {
    Liveness liveness(world_of(rank, 3), meeting.point(), kOptions, [&](const LostProcess&) { EXPECT_NE(rank, 1); });
    all_joined.arrive_and_wait();
    if (rank == 1) liveness.stop("stopped by SIGINT");
    const auto lost = liveness.wait_for_lost(kTimeout);
    ASSERT_TRUE(lost.has_value());
    EXPECT_EQ(lost->how, LostProcess::How::kStopped);
    EXPECT_THAT(lost->describe(), AllOf(HasSubstr("rank 1 (host "), HasSubstr(") was stopped by SIGINT")));
  });
  EXPECT_THAT(failures, Each(""));
}

TEST(Liveness, AReasonOfAnyLengthAndBytesArrivesOnOneLine) {
  Meeting meeting;
  std::barrier all_joined(2);
  const std::string odd = "line\nbreak \"quoted\" \xff\x01 " + std::string(100000, '\x02');
  const auto failures = run_ranks(2, [&](int rank) {
    Liveness liveness(world_of(rank, 2), meeting.point(), kOptions, [](const LostProcess&) {});
    all_joined.arrive_and_wait();
    if (rank == 1) return liveness.fail(odd);
    const auto lost = liveness.wait_for_lost(kTimeout);
    ASSERT_TRUE(lost.has_value());
    EXPECT_EQ(lost->how, LostProcess::How::kFailed);
    EXPECT_THAT(lost->reason, testing::StartsWith("line\nbreak \"quoted\" "));
  });
  EXPECT_THAT(failures, Each(""));
}

TEST(Liveness, Rank0LeavesAfterItsPatienceAndThatIsNoLossEither) {
  Meeting meeting;
  std::promise<void> rank_0_is_gone;
  LivenessOptions options = kOptions;
  options.drain_timeout = milliseconds(300);
  const auto failures = run_ranks(2, [&](int rank) {
    {
      Liveness liveness(world_of(rank, 2), meeting.point(), options, nothing_is_lost);
      if (rank == 1) rank_0_is_gone.get_future().wait();
      liveness.leave();
      EXPECT_EQ(liveness.wait_for_lost(milliseconds(100)), std::nullopt);
    }
    if (rank == 0) rank_0_is_gone.set_value();
  });
  EXPECT_THAT(failures, Each(""));
}

TEST(Liveness, RanksThatDoNotConnectAreNamedToAllThatDid) {
  Meeting meeting;
  LivenessOptions options = kOptions;
  options.connect_timeout = milliseconds(1500);
  const auto failures = run_ranks(5, [&](int rank) {
    if (rank == 1 || rank == 4) return;
    Liveness(world_of(rank, 5), meeting.point(), options, nothing_is_lost);
  });
  for (const int rank : {0, 2, 3}) {
    EXPECT_THAT(failures[rank], AllOf(HasSubstr("5: "), HasSubstr("ranks 1, 4 of 5 did not open"))) << rank;
  }
}

TEST(Liveness, ARankThatDiesWhileTheRunStartsIsNamed) {
  Meeting meeting;
  const auto failures = run_ranks(3, [&](int rank) {  // of 4
    if (rank != 1) {
      const Liveness none(world_of(rank, 4), meeting.point(), kOptions, nothing_is_lost);
      return;
    }
    std::istringstream words(meeting.text());
    std::string port, token;
    words >> port >> token;
    const Stranger half(meeting.port());
    half.send(ControlMessage{.kind = ControlMessage::Kind::kHello, .token = token, .lost = {.rank = 1, .host = "there"}}
                  .to_line() +
              "\n");
    std::this_thread::sleep_for(milliseconds(500));  // time to be let in
  });
  for (const int rank : {0, 2})
    EXPECT_THAT(failures[rank], HasSubstr("rank 1 (host there) died while the run started"));
}

TEST(Liveness, Rank0ThatCannotBeReachedIsNamed) {
  const int port = test::free_port();
  LivenessOptions options = kOptions;
  options.connect_timeout = milliseconds(500);
  const MeetingPoint nowhere{.publish = {}, .look_up = [&] { return concat(port, " token host"); }};
  const auto failures = run_ranks(2, [&](int rank) {
    if (rank == 1) Liveness(world_of(1, 2), nowhere, options, nothing_is_lost);
  });
  EXPECT_THAT(failures[1], AllOf(HasSubstr("5: rank 1 cannot open a control connection"), HasSubstr("firewalls")));
}

TEST(Liveness, AWrongTokenIsNotLetIn) {
  Meeting meeting;
  LivenessOptions options = kOptions;
  options.connect_timeout = milliseconds(1500);
  const auto failures = run_ranks(2, [&](int rank) {
    MeetingPoint point = meeting.point();
    point.look_up = [&] {
      std::string text = meeting.text();
      char& digit = text[text.find(' ') + 1];
      digit = digit == '0' ? '1' : '0';
      return text;
    };
    Liveness(world_of(rank, 2), point, options, nothing_is_lost);
  });
  EXPECT_THAT(failures[0], HasSubstr("5: rank 1 of 2 did not open a control connection"));
  EXPECT_THAT(failures[1], AllOf(HasSubstr("5: rank 0 (host "), HasSubstr("closed the control connection of rank 1")));
}

TEST(Liveness, StrangersAreDroppedBeforeAndAfterTheRunIsComplete) {
  Meeting meeting;
  std::promise<void> strangers_are_done;
  const auto done = strangers_are_done.get_future().share();
  const auto expect_dropped = [&] {
    for (const std::string& bytes :
         {std::string(100000, 'x'), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4000, '\0') + "\n",
          std::string("\xff\0\0\0\0\0\0\0\1\x7f\n", 11), std::string(3000, '[') + "\n",
          std::string("{\"say\":\"hello\",\"token\":\"\",\"rank\":1,\"host\":\"\"}\n"),
          std::string("{\"say\":\"lost\",\"rank\":1,\"host\":\"\",\"how\":\"dead\",\"reason\":\"\"}\n")}) {
      const Stranger stranger(meeting.port());
      stranger.send(bytes);
      EXPECT_TRUE(stranger.is_dropped()) << bytes.substr(0, 60);
    }
  };
  const auto failures = run_ranks(3, [&](int rank) {
    std::optional<Stranger> silent;
    if (rank == 1) {  // the last to come
      expect_dropped();
      silent.emplace(meeting.port());
    }
    Liveness liveness(world_of(rank, 3), meeting.point(), kOptions, nothing_is_lost);
    if (rank == 1) {
      EXPECT_TRUE(silent->is_dropped());
      expect_dropped();
      strangers_are_done.set_value();
    }
    done.wait();
    liveness.leave();
  });
  EXPECT_THAT(failures, Each(""));
}

TEST(Liveness, AStrangerThatSaysNothingIsDroppedWhileTheRunWaits) {
  Meeting meeting;
  LivenessOptions options = kOptions;
  options.peer_timeout = milliseconds(2000);
  const auto failures = run_ranks(2, [&](int rank) {
    if (rank == 1) {
      EXPECT_TRUE(Stranger(meeting.port()).is_dropped());
    }
    Liveness(world_of(rank, 2), meeting.point(), options, [](const LostProcess&) {}).leave();
  });
  EXPECT_THAT(failures, Each(""));
}

TEST(Liveness, TheSameRankIsLetInOnce) {
  Meeting meeting;
  std::promise<void> second_was_refused;
  const auto refused = second_was_refused.get_future().share();
  const auto failures = run_ranks(4, [&](int thread) {  // 0, 1, again 1, 2
    if (thread == 2) std::this_thread::sleep_for(milliseconds(500));
    if (thread == 3) refused.wait();
    try {
      Liveness liveness(world_of(std::min({thread, 1 + thread / 3, 2}), 3), meeting.point(), kOptions, nothing_is_lost);
      liveness.leave();
    } catch (const PeerError&) {
      second_was_refused.set_value();
      throw;
    }
  });
  EXPECT_EQ(std::ranges::count(failures, ""), 3);
  EXPECT_THAT(failures, testing::Contains(HasSubstr("closed the control connection of rank 1")));
}

TEST(Liveness, NothingListensAfterwardsAndNoDescriptorIsInherited) {
  Meeting meeting;
  std::set<std::string> before;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) before.insert(entry.path().filename());
  const auto failures = run_ranks(2, [&](int rank) {
    Liveness liveness(world_of(rank, 2), meeting.point(), kOptions, nothing_is_lost);
    if (rank == 0) {
      for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const std::string fd = entry.path().filename();
        const int flags = ::fcntl(std::stoi(fd), F_GETFD);  // -1: the iterator's own, by now closed
        EXPECT_TRUE(before.contains(fd) || flags == -1 || (flags & FD_CLOEXEC) != 0) << fd;
      }
      EXPECT_TRUE(Stranger(meeting.port()).is_open());
    }
    liveness.leave();
  });
  EXPECT_THAT(failures, Each(""));
  EXPECT_FALSE(Stranger(meeting.port()).is_open());
}

TEST(ControlMessage, WhatCannotBeReadIsNoMessage) {
  for (const char* const line : {"", "{}", "[]", "null", "{\"say\":1}", "{\"say\":\"nothing\"}", "{\"say\":\"hello\"}",
                                 "{\"say\":\"lost\",\"rank\":\"x\",\"host\":\"\",\"how\":\"dead\",\"reason\":\"\"}",
                                 "{\"say\":\"lost\",\"rank\":1,\"host\":\"\",\"how\":\"given up\",\"reason\":\"\"}"}) {
    EXPECT_FALSE(ControlMessage::from_line(line)) << line;
  }
  const ControlMessage lost{.kind = ControlMessage::Kind::kLost,
                            .lost = {.rank = 3, .host = "a", .how = LostProcess::How::kHung, .reason = "10 s"}};
  EXPECT_EQ(ControlMessage::from_line(lost.to_line())->lost, lost.lost);
}

}  // namespace
}  // namespace sluice::comm
