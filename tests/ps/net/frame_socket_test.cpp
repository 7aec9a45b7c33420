// Servers whose host has a name that comes late, and several addresses.
#include "ps/net/frame_socket.h"

#include <gtest/gtest.h>

#include "comm/names.h"
#include "core/clock.h"

namespace sluice::ps {
namespace {

TEST(FrameSocket, ConnectsToTheAddressOfAHostThatAnswers) {
  comm::test::set_host("server.test", {"127.0.0.3", "127.0.0.1"}, /*unknown_for=*/1);
  FrameSocket server(FrameSocket::Role::kListening, "", {}), worker(FrameSocket::Role::kConnecting, "worker", {});
  worker.connect("server.test", server.listen("127.0.0.1", 0));
  std::optional<FrameSocket::Received> received;
  for (const Nanoseconds end = now_ns() + 60'000'000'000; !received && now_ns() < end; received = server.next()) {
    worker.send({}, {frame_of("hello")});
    server.wait(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(received);
  EXPECT_EQ(received->routing_id, "worker");
  EXPECT_EQ(received->frames.front().bytes, "hello");
}

}  // namespace
}  // namespace sluice::ps
