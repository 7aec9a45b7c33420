// Pushes that go ahead of their record, where that goes wrong most easily: many messages, messages that come twice, and
// workers that fail in the middle of it. What is lost is lossy_test.cpp's; all other tests push so every second time.
#include <gtest/gtest.h>

#include "ps/net/toy_shards.h"

namespace sluice::ps::test {
namespace {

// A server of one long parameter, served by its own thread from start() on.
class LongServer {
 public:
  explicit LongServer(std::int64_t elements, Nanoseconds heartbeat_interval = kHeartbeatInterval)
      : server_(
            make_layout({{"a", {elements}, {1}}}, {}, {.shards = 1, .split_bound = elements}), {at::zeros({elements})},
            at::zeros({0}),
            {.policy = preset_policy("bsp", 1), .optimizer = {.kind = "sgd"}, .lr = [](const auto&) { return 0.5; }}),
        ledger_({.seed = 3, .samples = kSamples}),
        network_(server_, ledger_,
                 {.last_version = 3, .heartbeat_interval = heartbeat_interval, .peer_timeout = 20'000'000'000}) {}
  ~LongServer() { join(); }

  void start() {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      try {
        while (!stop.stop_requested() && !network_.is_over()) static_cast<void>(network_.next(20'000'000));
      } catch (const Error& error) {
        failure = error.what();
      }
    });
  }
  // Until it is over, or has failed.
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  void serve_until(const std::function<bool()>& is_done) {
    while (!is_done()) static_cast<void>(network_.next(1'000'000));
  }
  [[nodiscard]] int port() const { return network_.port(); }
  [[nodiscard]] const Server& server() const { return server_; }

  std::string failure;

 private:
  Server server_;
  data::Ledger ledger_;
  NetworkServer network_;
  std::jthread thread_;
};

LinkOptions patient_link(int port) {
  LinkOptions options = toy_link(port, 0);
  options.connect_timeout = options.peer_timeout = 20'000'000'000;
  return options;
}

TEST(AheadTest, APushMayBeMoreMessagesThanASocketHolds) {
  constexpr std::int64_t kMessages = 3000, kEach = 4096;
  LongServer server(kMessages * kEach);
  server.start();
  NetworkLink link(patient_link(server.port()));
  Tensors weights = room_for(link.layout());
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(link.next_lease().has_value());
    Push push{.record = {.base_version = link.pull(weights), .examples = 1, .targets = 1},
              .tensors = {.statistics = at::empty({0})}};
    for (std::int64_t m = 0; m < kMessages; ++m) link.push_ahead(0, {{m * kEach, kEach}}, at::full({kEach}, 1.0 * m));
    link.push(std::move(push));
  }
  server.join();
  EXPECT_EQ(server.server().progress().version, 3);
  const at::Tensor expected = at::arange(kMessages).repeat_interleave(kEach).to(at::kFloat) * -1.5;
  EXPECT_TRUE(at::equal(server.server().weights().tensors.shards[0], expected));
}

// A gradient waits to leave, and nobody reads it. The worker's last message must arrive, although the connection is
// reset if it is closed while one of the server's many heartbeats is unread.
TEST(AheadTest, LastWordsDoNotWaitForWhatCountsForNothing) {
  constexpr std::int64_t kMessages = 1200, kEach = 16384;
  LongServer server(kMessages * kEach, /*heartbeat_interval=*/1'000'000);
  std::optional<NetworkLink> link;
  std::atomic<bool> is_there = false;
  std::thread worker([&] {
    link.emplace(patient_link(server.port()));
    Tensors weights = room_for(link->layout());
    EXPECT_TRUE(link->next_lease().has_value());
    static_cast<void>(link->pull(weights));
    is_there = true;
  });
  server.serve_until([&] { return is_there.load(); });
  worker.join();
  for (std::int64_t m = 0; m < kMessages; ++m) link->push_ahead(0, {{m * kEach, kEach}}, at::zeros({kEach}));
  std::thread end([&] {
    link->fail(DivergedError("the loss is nan"));
    link.reset();
  });
  server.start();
  end.join();
  server.join();
  EXPECT_NE(server.failure.find("the loss is nan"), std::string::npos) << server.failure;
}

// What has come ahead of it is with the first one.
TEST(AheadTest, APushThatWaitsForAnotherServerAndComesAgainIsNotAskedFor) {
  ToyShardServer other;
  ToyServer lead(preset_policy("bsp", 1), 3, 2, {}, std::nullopt, nullptr, {other.address()});
  lead.start();
  FrameSocket socket(FrameSocket::Role::kConnecting, "worker", kFromServers);
  socket.connect("127.0.0.1", lead.port());
  std::int64_t lease = kNone;
  bool has_begun = false;
  // How often it is asked for its push.
  const auto listen = [&] {
    int asked = 0;
    for (const Nanoseconds until = now_ns() + 200'000'000; now_ns() < until;) {
      socket.wait(std::chrono::milliseconds(5));
      while (auto received = socket.next()) {
        const auto message = from_server(received->frames.front());
        if (!message) continue;
        if (const auto* const given = std::get_if<LeaseGiven>(&*message)) lease = given->id;
        has_begun |= std::holds_alternative<WeightsGiven>(*message);
        asked += std::holds_alternative<ServerAgain>(*message) ? 1 : 0;
      }
    }
    return asked;
  };
  for (int i = 0; i < 50 && !has_begun; ++i) {
    socket.send({}, {header_of(Hello{.worker = WorkerId{0}, .process_id = "s", .where = "here", .batch = kLease})});
    listen();
  }
  ASSERT_TRUE(has_begun);
  const TensorsShape shape = shape_of(toy_layout(2), {0, 1});
  const PushRecord record{.worker = WorkerId{0}, .incarnation = 1, .sequence = 1, .examples = 1, .targets = 1};
  const PushAhead ahead{.push = record.key(), .lease = lease, .shard = 0, .spans = {{0, shape.shards[0]}}};
  for (int times = 0; times < 3; ++times) {
    socket.send({}, {header_of(FromWorker{ahead}), frame_of(at::ones({shape.shards[0]}, at::kDouble))});
    socket.send({}, {header_of(PushMade{record, {}, {}, lease, true}), frame_of(at::zeros({2}, at::kDouble))});
    EXPECT_EQ(listen(), 0) << times;
  }
  lead.kill();
}

}  // namespace
}  // namespace sluice::ps::test
