// What reaches a parameter server's port and is not, or not only, what a worker says: repeated, malformed, too long, of
// another shape.
#include <gtest/gtest.h>

#include "ps/net/toy.h"

namespace sluice::ps::test {
namespace {

// Speaks as a worker does, but says what it likes.
class Stranger {
 public:
  explicit Stranger(int port) : socket_(FrameSocket::Role::kWorker, "stranger", {.frame_bytes = -1, .frames = 4096}) {
    socket_.connect("127.0.0.1", port);
  }
  void say(const Frames& frames) { socket_.send({}, frames); }
  void say(std::string header) { say(Frames{frame_of(std::move(header))}); }
  std::optional<FrameSocket::Received> hear(double seconds = 2) {
    const Nanoseconds until = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
    while (now_ns() < until) {
      socket_.wait(std::chrono::milliseconds(10));
      if (auto received = socket_.next()) return received;
    }
    return std::nullopt;
  }
  // The next message of this kind.
  template <typename T>
  std::optional<std::pair<T, Frames>> hear_of() {
    for (int i = 0; i < 200; ++i) {
      auto received = hear();
      if (!received) break;
      const auto message = from_server(received->frames.front());
      if (message && std::holds_alternative<T>(*message)) return std::pair{std::get<T>(*message), received->frames};
    }
    return std::nullopt;
  }
  void join(int worker) {
    for (int i = 0; i < 100; ++i) {
      say({header_of(Hello{.worker = WorkerId{worker}, .session = "s", .where = "here", .batch = kLease})});
      if (hear(0.05)) return;
    }
    FAIL();
  }

 private:
  FrameSocket socket_;
};

TEST(NetworkTest, APushThatIsSentAgainCountsOnce) {
  ToyServer server(preset_policy("asp", 1), 3, 1);
  server.start();
  Stranger worker(server.port());
  worker.join(0);
  const auto lease = worker.hear_of<LeaseGiven>();
  ASSERT_TRUE(lease);
  const auto weights = worker.hear_of<WeightsGiven>();
  ASSERT_TRUE(weights);
  const auto samples = *samples_after_header(lease->second);
  Push push = toy_push(0, *tensors_after_header(weights->second, toy_layout(1)), samples);
  push.record.life = 1;
  push.record.sequence = 1;
  const Frames frames = with_tensors(header_of(PushMade{push.record, {}, {}, lease->first.id}), push.tensors);
  for (int i = 0; i < 4; ++i) worker.say(frames);
  std::vector<PushAnswer> answers;
  for (int i = 0; i < 4; ++i) answers.push_back(worker.hear_of<PushAnswered>()->first.answer);
  EXPECT_EQ(answers,
            (std::vector{PushAnswer::kTaken, PushAnswer::kDuplicate, PushAnswer::kDuplicate, PushAnswer::kDuplicate}));
  server.stop();
  EXPECT_EQ(server.server().progress().version, 1);
}

TEST(NetworkTest, WhatMakesNoSenseIsDroppedAndCounted) {
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  Stranger stranger(server.port());
  ASSERT_TRUE([&] {
    for (int i = 0; i < 100; ++i) {
      stranger.say("{\"say\": \"beat\", \"pushed\": 0}");
      if (stranger.hear(0.05)) return true;
    }
    return false;
  }());
  std::int64_t bad = 0;
  for (const char* header : {"", "{", "[]", "{}", "{\"say\": 3}", "{\"say\": \"nothing\"}", "{\"say\": \"hello\"}",
                             "{\"say\": \"beat\", \"pushed\": \"1\"}", "{\"say\": \"beat\", \"pushed\": 1.5}",
                             "{\"say\": \"beat\", \"pushed\": 99999999999999999999}", "\xff\xfe"}) {
    stranger.say(header);
    ++bad;
  }
  stranger.say(
      "{\"say\": \"hello\", \"protocol\": 1, \"worker\": -1, \"session\": \"\", \"where\": \"\", \"agreement\": {}}");
  ++bad;
  stranger.say(std::string(100'000, '['));
  ++bad;
  stranger.say(Frames(500, frame_of(std::string("x"))));
  ++bad;
  EXPECT_EQ(work(toy_link(server.port(), 0)), 5) << "the others are served";
  server.join();
  EXPECT_FALSE(server.failure);
  EXPECT_EQ(server.network().malformed(), bad);
}

// A frame that is longer than anything that a worker sends ends its connection before memory is taken for it.
TEST(NetworkTest, FramesThatAreTooLongAreNotRead) {
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  Stranger stranger(server.port());
  stranger.join(0);
  stranger.say(Frames{frame_of(std::string(64 << 20, 'x'))});
  EXPECT_EQ(work(toy_link(server.port(), 0)), 5);
  server.join();
  EXPECT_FALSE(server.failure);
  EXPECT_EQ(server.network().malformed(), 0);
}

// The server took all that had come before it did anything else: with busy workers it told no update, sent no sign of
// life and looked at no signal for as long as they kept it busy.
TEST(NetworkTest, WhoNeverStopsTalkingKeepsTheServerFromNothing) {
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  std::atomic<bool> is_over = false;
  const Nanoseconds begin = now_ns(), end = begin + 8'000'000'000;
  std::thread talker([&] {
    Stranger stranger(server.port());
    while (!is_over && now_ns() < end) {
      stranger.say(std::string(10'000, '['));  // takes longer to read than to say
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(work(toy_link(server.port(), 0)), 5);
  server.join();
  EXPECT_LT(now_ns(), end) << "it ended when nobody talked any more";
  is_over = true;
  talker.join();
  EXPECT_FALSE(server.failure);
  EXPECT_EQ(server.updates.size(), 5U);
  EXPECT_GT(server.network().malformed(), 100);
}

TEST(NetworkTest, APushOfAnotherShapeOrLeaseIsNotTaken) {
  ToyServer server(preset_policy("asp", 1), 5, 2);
  server.start();
  Stranger worker(server.port());
  worker.join(0);
  const auto lease = worker.hear_of<LeaseGiven>();
  const auto weights = worker.hear_of<WeightsGiven>();
  ASSERT_TRUE(lease && weights);
  const Tensors good = toy_push(0, *tensors_after_header(weights->second, toy_layout(2)), {1, 2}).tensors;
  const PushRecord record{.life = 1, .sequence = 1, .examples = 2, .targets = 2};
  const auto answer_to = [&](PushRecord of, std::int64_t id, const Tensors& tensors) {
    worker.say(with_tensors(header_of(PushMade{of, {}, {}, id}), tensors));
    return worker.hear_of<PushAnswered>()->first.answer;
  };
  PushRecord of = record;
  EXPECT_EQ(answer_to(of, lease->first.id + 1, good), PushAnswer::kOutOfTurn) << "of another lease";
  of.examples = kLease + 1;
  EXPECT_EQ(answer_to(of, lease->first.id, good), PushAnswer::kOutOfTurn) << "more samples than it was given";
  of = record;
  of.payload = Payload::kWeights;
  EXPECT_EQ(answer_to(of, lease->first.id, good), PushAnswer::kOutOfTurn) << "of another kind";
  of = record;
  of.life = 2;
  EXPECT_EQ(answer_to(of, lease->first.id, good), PushAnswer::kUnknown);
  of = record;
  of.sequence = 2;
  EXPECT_EQ(answer_to(of, lease->first.id, good), PushAnswer::kOutOfTurn);
  Tensors other = good;
  std::swap(other.shards[0], other.shards[1]);
  ASSERT_NE(other.shards[0].numel(), good.shards[0].numel());
  EXPECT_EQ(answer_to(record, lease->first.id, other), PushAnswer::kOutOfTurn) << "of another shape";
  EXPECT_EQ(answer_to(record, lease->first.id, good), PushAnswer::kTaken);
  server.stop();
  EXPECT_EQ(server.server().progress().version, 1);
}

}  // namespace
}  // namespace sluice::ps::test
