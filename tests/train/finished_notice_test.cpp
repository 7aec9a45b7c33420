// Which workers server 0 of a run that is done answers, and how long it waits for them.
#include "train/serve/finished_notice.h"

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
  const ps::Frame hello = ps::header_of(ps::FromWorker(ps::Hello{.worker = ps::WorkerId{worker}, .process_id = "s"}));
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

TEST(FinishedNotice, AnswersAWorkerThatComesWhenTheOthersHaveLeft) {
  train::Setup setup;
  setup.config.ps.workers = 2;
  const ServerRole role{
      .part = ServerRole::Part::kServer, .host = "127.0.0.1", .port = comm::test::free_port(), .others = {}};
  const auto server = std::async(std::launch::async, [&] { notify_late_workers(setup, role, "this version"); });
  EXPECT_TRUE(hears_that_the_run_is_over(role.port, 0));
  EXPECT_EQ(server.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout)
      << "worker 1 has not come yet";
  EXPECT_TRUE(hears_that_the_run_is_over(role.port, 1));
  EXPECT_EQ(server.wait_for(std::chrono::seconds(60)), std::future_status::ready);
}

}  // namespace
}  // namespace sluice::train
