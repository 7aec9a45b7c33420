// Whom server 0 of a run that is done tells so, and how long it stays for them.
#include "train/was_done.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <variant>

#include "comm/ranks.h"
#include "core/clock.h"
#include "core/concat.h"
#include "ps/net/frame_socket.h"
#include "ps/net/messages.h"

namespace sluice::train {
namespace {

// Greets as this worker does until the answer is that the run is over, and confirms that.
bool hears_that_the_run_is_over(int port, int worker) {
  ps::FrameSocket socket(ps::FrameSocket::Role::kConnecting, concat("worker ", worker), {});
  socket.connect("127.0.0.1", port);
  const ps::Frame hello = ps::header_of(ps::FromWorker(ps::Hello{.worker = ps::WorkerId{worker}, .session = "s"}));
  for (const Nanoseconds end = now_ns() + 20'000'000'000; now_ns() < end;) {
    socket.send({}, {hello});
    socket.wait(std::chrono::milliseconds(20));
    while (const auto received = socket.next()) {
      const auto message = ps::from_server(received->frames.front());
      if (!message || !std::holds_alternative<ps::Over>(*message)) continue;
      return socket.send({}, {ps::header_of(ps::FromWorker(ps::Leaving{}))});
    }
  }
  return false;
}

TEST(WasDone, AWorkerThatComesWhenTheOthersHaveLeftIsToldToo) {
  train::Setup setup;
  setup.config.ps.workers = 2;
  const ServerPlace place{
      .part = ServerPlace::Part::kServer, .host = "127.0.0.1", .port = comm::test::free_port(), .others = {}};
  const auto server = std::async(std::launch::async, [&] { tell_that_it_was_done(setup, place, "this version"); });
  EXPECT_TRUE(hears_that_the_run_is_over(place.port, 0));
  EXPECT_EQ(server.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout)
      << "worker 1 has not come yet";
  EXPECT_TRUE(hears_that_the_run_is_over(place.port, 1));
  EXPECT_EQ(server.wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

}  // namespace
}  // namespace sluice::train
