// What connections that nobody trusts may take of a listening socket's memory.
#include "ps/net/stranger_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <string>

#include "ps/net/raw_peer.h"
#include "ps/net/toy.h"
#include "support/long_tests.h"

namespace sluice::ps::test {
namespace {

// More than leaves within the 0.1 s that the guard's thread may have to wait for a core.
constexpr std::int64_t kFarTooMuch = std::int64_t{512} << 20;

// ZeroMQ keeps the frames of a message without any bound until the last one comes.
TEST(StrangerGuardTest, AMessageThatNeverEndsEndsTheConnection) {
  const std::string frame = std::string("\x01\xff", 2) + std::string(255, 'x');  // more of them follow
  std::string frames;
  while (frames.size() < 60'000) frames += frame;
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  for (int i = 0; i < 2; ++i) {
    RawPeer peer(connected_to(server.port()), "DEALER");
    peer.wait_until_ready();
    EXPECT_LT(peer.send_endlessly(frames, kFarTooMuch), kFarTooMuch);
  }
  EXPECT_EQ(work(toy_link(server.port(), 0)), 5) << "the others are served";
  server.join();
  EXPECT_FALSE(server.failure);
}

// Of frames as long as a push may have, too, and before a handshake.
TEST(StrangerGuardTest, WhoIsNotKnownMaySendLittle) {
  FrameSocket socket(FrameSocket::Role::kListening, {}, {.frame_bytes = -1});
  const int port = socket.listen("127.0.0.1", 0);
  for (const bool waits : {true, false}) {
    RawPeer peer(connected_to(port), "DEALER");
    if (waits) peer.wait_until_ready();
    peer.announce(std::uint64_t{1} << 30);
    EXPECT_LT(peer.send_endlessly(std::string(60'000, 'x'), kFarTooMuch), kFarTooMuch);
  }
}

// 5 s is the least that replicas.hang_timeout_s may be.
TEST(StrangerGuardTest, AHandshakeThatStallsEndsSooner) {
  static_assert(FrameSocket::kHandshake < std::chrono::seconds(5));
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "it takes 4 s";
  FrameSocket socket(FrameSocket::Role::kListening, {}, {});
  RawPeer silent(connected_to(socket.listen("127.0.0.1", 0)));
  EXPECT_TRUE(silent.is_closed_within(30));
}

// Many strangers share what one may send.
TEST(StrangerGuardTest, ManyStrangersTogetherMaySendLittle) {
  FrameSocket socket(FrameSocket::Role::kListening, {}, {.frame_bytes = -1});
  const int port = socket.listen("127.0.0.1", 0);
  constexpr std::int64_t kEach = std::int64_t{1} << 20;
  std::deque<RawPeer> peers;
  for (int i = 0; i < 16; ++i) {
    RawPeer& peer = peers.emplace_back(connected_to(port), "DEALER");
    peer.announce(std::uint64_t{1} << 30);
    peer.send_endlessly(std::string(60'000, 'x'), kEach);
  }
  std::ptrdiff_t closed = 0;
  for (int looks = 0; looks < 100 && closed < 8; ++looks)
    closed = std::ranges::count_if(peers, [](RawPeer& peer) { return peer.is_closed_within(0.01); });
  EXPECT_GE(closed, 8);
}

// The strangers that have sent the most are closed. Those that have sent little may be about to join.
TEST(StrangerGuardTest, WhoHasSentLittleStaysWhenAnotherSendsTooMuch) {
  FrameSocket socket(FrameSocket::Role::kListening, {}, {.frame_bytes = -1});
  const int port = socket.listen("127.0.0.1", 0);
  RawPeer small(connected_to(port), "DEALER"), large(connected_to(port), "DEALER");
  for (RawPeer* peer : {&small, &large}) {
    peer->wait_until_ready();
    peer->announce(std::uint64_t{1} << 30);
  }
  EXPECT_LT(large.send_endlessly(std::string(60'000, 'x'), kFarTooMuch), kFarTooMuch);
  EXPECT_FALSE(small.is_closed_within(0.5));
}

// A trusted peer is known by its name, also when it comes anew over another connection and is the first to speak.
TEST(StrangerGuardTest, WhoIsTrustedMaySendMuch) {
  FrameSocket socket(FrameSocket::Role::kListening, {}, {.frame_bytes = -1});
  const int port = socket.listen("127.0.0.1", 0);
  constexpr std::int64_t kLarge = std::int64_t{128} << 20;
  static_assert(kLarge > StrangerGuard::kFarTooManyBytes);
  const Frames small{frame_of(std::string("hello"))}, large{frame_of(std::string(std::size_t{kLarge}, 'x'))};
  const auto receives = [&](FrameSocket& peer, const Frames& message) {
    const Nanoseconds until = now_ns() + 60'000'000'000;
    Nanoseconds again = 0;
    while (now_ns() < until) {
      if (now_ns() >= again && peer.send({}, message)) again = now_ns() + 5'000'000'000;
      socket.wait(std::chrono::milliseconds(10));
      while (const auto received = socket.next()) {
        if (received->frames.front().bytes.size() == message.front().bytes.size()) return true;
      }
    }
    return false;
  };
  {
    FrameSocket peer(FrameSocket::Role::kConnecting, "worker", {});
    peer.connect("127.0.0.1", port);
    ASSERT_TRUE(receives(peer, small));
    socket.trust("worker");
    EXPECT_TRUE(receives(peer, large));
  }
  FrameSocket anew(FrameSocket::Role::kConnecting, "worker", {});
  anew.connect("127.0.0.1", port);
  EXPECT_TRUE(receives(anew, large));
  RawPeer stranger(connected_to(port), "DEALER");
  stranger.announce(std::uint64_t{1} << 30);
  EXPECT_LT(stranger.send_endlessly(std::string(60'000, 'x'), kFarTooMuch), kFarTooMuch)
      << "without trust it is closed";
}

}  // namespace
}  // namespace sluice::ps::test
