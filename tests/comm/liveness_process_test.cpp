// Real processes that are killed, stopped and continued: all others name the first one that was lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <random>
#include <thread>

#include "comm/peer_process.h"
#include "core/concat.h"
#include "support/long_tests.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;
using test::PeerProcesses;

constexpr milliseconds kPeerTimeout{2500};  // of a process that is stopped
constexpr milliseconds kTimeout{20000};     // where nobody is meant to count as hung, however busy the machine

std::string here(int rank) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return concat("rank ", rank, " (host ", name.data(), ")");
}

// Expects that every process except `without` prints `what` and nothing else, and ends with code 5.
void expect_all_say(PeerProcesses& peers, const std::string& what, int without) {
  for (int rank = 0; rank < peers.size(); ++rank) {
    if (rank == without) continue;
    EXPECT_EQ(peers[rank].read_line(), what) << "rank " << rank;
    EXPECT_EQ(peers[rank].read_line(), "") << "rank " << rank;
    EXPECT_EQ(peers[rank].wait(), 5) << "rank " << rank;
  }
}

TEST(LivenessOfProcesses, TheOneThatIsKilledIsNamedByAllOthers) {
  for (const int victim : {0, 1, 3}) {
    PeerProcesses peers(4, kTimeout);
    peers[victim].signal(SIGKILL);
    expect_all_say(peers, concat("lost ", victim, ": ", here(victim), " died"), victim);
  }
}

TEST(LivenessOfProcesses, TheOneThatCrashesIsNamedByAllOthers) {
  PeerProcesses peers(3, kTimeout);
  peers[2].send_command("exit");
  expect_all_say(peers, concat("lost 2: ", here(2), " died"), 2);
}

TEST(LivenessOfProcesses, OfEightOneIsKilledAtSomeMoment) {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    std::mt19937 random(seed);
    const int victim = std::uniform_int_distribution(0, 7)(random);
    const milliseconds moment(std::uniform_int_distribution(0, 200)(random));
    PeerProcesses peers(8, kTimeout);
    std::this_thread::sleep_for(moment);
    peers[victim].signal(SIGKILL);
    SCOPED_TRACE(concat("seed ", seed, ": rank ", victim, " after ", moment.count(), " ms"));
    expect_all_say(peers, concat("lost ", victim, ": ", here(victim), " died"), victim);
  }
}

// A stopped rank 0 receives the report from its neighbours; other ranks receive it from rank 0.
TEST(LivenessOfProcesses, TheOneThatIsStoppedIsNamedAndLearnsItWhenItGoesOn) {
  for (const int victim : {0, 1}) {
    PeerProcesses peers(3, kPeerTimeout);
    const auto stopped = std::chrono::steady_clock::now();
    peers[victim].signal(SIGSTOP);
    expect_all_say(peers,
                   concat("lost ", victim, ": ", here(victim),
                          " has not answered for 2.5 s: it hangs, is stopped or has lost its network"),
                   victim);
    EXPECT_GE(std::chrono::steady_clock::now() - stopped, kPeerTimeout) << "it was given up before its time";
    std::this_thread::sleep_for(milliseconds(200));
    peers[victim].signal(SIGCONT);
    EXPECT_EQ(peers[victim].read_line(),
              concat("lost ", victim, ": the other processes dropped this process, ", here(victim),
                     ", because they received nothing from it for 2.5 s: it was stopped or had lost its network"));
    EXPECT_EQ(peers[victim].wait(), 5);
  }
}

// One of the two moments lies half a heartbeat or more after the last heartbeat, from which the silence is not counted.
TEST(LivenessOfProcesses, NobodyIsGivenUpBeforeItsTimeHoweverOldItsLastBeat) {
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "long: it waits for 6 s";
  constexpr milliseconds kHeartbeatInterval{800};
  for (const milliseconds moment : {milliseconds(0), kHeartbeatInterval / 2}) {
    PeerProcesses peers(2, kPeerTimeout, kHeartbeatInterval);
    std::this_thread::sleep_for(moment);
    const auto stopped = std::chrono::steady_clock::now();
    peers[1].signal(SIGSTOP);
    EXPECT_THAT(peers[0].read_line(), testing::HasSubstr("has not answered for 2.5 s"));
    EXPECT_GE(std::chrono::steady_clock::now() - stopped, kPeerTimeout) << "after " << moment.count() << " ms";
  }
}

TEST(LivenessOfProcesses, AShortStopIsNoLoss) {
  PeerProcesses peers(3, kTimeout);
  for (const int paused : {0, 2}) {
    peers[paused].signal(SIGSTOP);
    std::this_thread::sleep_for(milliseconds(1000));
    peers[paused].signal(SIGCONT);
  }
  for (int rank = 0; rank < 3; ++rank) peers[rank].send_command("leave");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(peers[rank].read_line(), "left") << rank;
}

// Like a suspended machine: nobody has run, so nobody has been silent. They wake one after the other, some time apart.
TEST(LivenessOfProcesses, AStopOfAllProcessesIsNoLoss) {
  PeerProcesses peers(3, kPeerTimeout);
  for (int rank = 0; rank < 3; ++rank) peers[rank].signal(SIGSTOP);
  std::this_thread::sleep_for(2 * kPeerTimeout);
  for (int rank = 0; rank < 3; ++rank) {
    peers[rank].signal(SIGCONT);
    std::this_thread::sleep_for(milliseconds(300));
  }
  for (int rank = 0; rank < 3; ++rank) peers[rank].send_command("leave");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(peers[rank].read_line(), "left") << rank;
}

TEST(LivenessOfProcesses, WhyOneFailsReachesAllOthers) {
  for (const int failing : {0, 2}) {
    PeerProcesses peers(4, kTimeout);
    peers[failing].send_command("fail the lost is NaN at step 7; lower train.lr");
    expect_all_say(peers,
                   concat("lost ", failing, ": ", here(failing), " failed: the lost is NaN at step 7; lower train.lr"),
                   failing);
    EXPECT_EQ(peers[failing].read_line(), "failed");
    EXPECT_EQ(peers[failing].wait(), 6);
  }
}

TEST(LivenessOfProcesses, TheyLeaveInAnyOrderWithoutALoss) {
  for (const std::vector<int>& order : {std::vector{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}}) {
    PeerProcesses peers(4, kTimeout);
    for (const int rank : order) {
      peers[rank].send_command("leave");
      std::this_thread::sleep_for(milliseconds(60));
    }
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(peers[rank].read_line(), "left") << rank;
      EXPECT_EQ(peers[rank].wait(), 0) << rank;
    }
  }
}

TEST(LivenessOfProcesses, WhoeverIsKilledWhileRank0WaitsForTheLastIsNamed) {
  PeerProcesses peers(3, kTimeout);
  peers[0].send_command("leave");
  peers[1].send_command("leave");
  EXPECT_EQ(peers[1].read_line(), "left");
  peers[2].signal(SIGKILL);
  EXPECT_EQ(peers[0].read_line(), concat("lost 2: ", here(2), " died"));
}

}  // namespace
}  // namespace sluice::comm
