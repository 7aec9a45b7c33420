// What reaches a parameter server's port and is not, or not only, what a worker says: repeated, malformed, too long, of
// another shape.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "ps/net/raw_peer.h"
#include "ps/net/stranger.h"
#include "ps/net/toy.h"

namespace sluice::ps::test {
namespace {

TEST(NetworkTest, APushThatIsSentAgainCountsOnce) {
  ToyServer server(preset_policy("asp", 1), 3, 1);
  server.start();
  Stranger worker(server.port());
  const Stranger::Begun begun = worker.begin(0, toy_layout(1));
  Push push = toy_push(0, begun.weights, begun.samples);
  push.record.incarnation = 1;
  push.record.sequence = 1;
  const Frames frames = with_tensors(header_of(PushMade{push.record, {}, {}, begun.lease}), push.tensors);
  for (int i = 0; i < 4; ++i) worker.send(frames);
  std::vector<PushAnswer> answers;
  for (int i = 0; i < 4; ++i) answers.push_back(worker.receive_kind<PushAnswered>()->first.answer);
  EXPECT_EQ(answers, (std::vector{PushAnswer::kCommitted, PushAnswer::kDuplicate, PushAnswer::kDuplicate,
                                  PushAnswer::kDuplicate}));
  server.stop();
  EXPECT_EQ(server.server().progress().version, 1);
}

TEST(NetworkTest, WhatMakesNoSenseIsDroppedAndCounted) {
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  Stranger stranger(server.port());
  ASSERT_TRUE([&] {
    for (int i = 0; i < 100; ++i) {
      stranger.send("{\"say\": \"beat\", \"pushed\": 0}");
      if (stranger.receive(0.05)) return true;
    }
    return false;
  }());
  std::int64_t bad = 0;
  for (const char* header : {"{", "[]", "{}", "{\"say\": 3}", "{\"say\": \"nothing\"}", "{\"say\": \"hello\"}",
                             "{\"say\": \"beat\", \"pushed\": \"1\"}", "{\"say\": \"beat\", \"pushed\": 1.5}",
                             "{\"say\": \"beat\", \"pushed\": 99999999999999999999}", "\xff\xfe"}) {
    stranger.send(header);
    ++bad;
  }
  stranger.send(
      "{\"say\": \"hello\", \"protocol\": 1, \"worker\": -1, \"session\": \"\", \"where\": \"\", \"agreement\": {}}");
  ++bad;
  stranger.send(std::string(100'000, '['));
  ++bad;
  stranger.send(Frames(500, frame_of(std::string("x"))));
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
  stranger.send(Frames{frame_of(std::string(64 << 20, 'x'))});
  EXPECT_EQ(work(toy_link(server.port(), 0)), 5);
  server.join();
  EXPECT_FALSE(server.failure);
  EXPECT_EQ(server.network().malformed(), 0);
}

// The server took all that had come before it did anything else: with busy workers it told no update, sent no sign of
// incarnation and looked at no signal for as long as they kept it busy.
TEST(NetworkTest, WhoNeverStopsTalkingKeepsTheServerFromNothing) {
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  std::atomic<bool> is_over = false;
  const Nanoseconds begin = now_ns(), end = begin + 8'000'000'000;
  std::thread talker([&] {
    Stranger stranger(server.port());
    while (!is_over && now_ns() < end) {
      stranger.try_send({frame_of(std::string(10'000, '['))});  // takes longer to read than to say
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_EQ(work(toy_link(server.port(), 0)), 5);
  server.join();
  EXPECT_LT(now_ns(), end) << "it ended when nobody talked any more";
  is_over = true;
  talker.join();
  EXPECT_FALSE(server.failure);
  EXPECT_EQ(server.updates.size(), 5U);
  EXPECT_GT(server.network().malformed(), 100);
}

// Nothing is reserved for what is merely announced, whether the handshake is over or not.
TEST(NetworkTest, TenGibibytesThatAreAnnouncedEndTheConnection) {
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  const MemoryUse before = memory_use();
  for (const std::uint64_t bytes : {std::uint64_t{10} << 30, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    RawPeer peer(connected_to(server.port()), "DEALER");
    EXPECT_FALSE(peer.is_closed_within(0.2)) << "it is a connection like any other";
    peer.announce(bytes);
    EXPECT_TRUE(peer.is_closed_within(5)) << bytes;
    RawPeer at_once(connected_to(server.port()), "DEALER");
    at_once.announce(bytes);
    EXPECT_TRUE(at_once.is_closed_within(5)) << bytes;
  }
  const MemoryUse after = memory_use();
  EXPECT_LT(after.reserved - before.reserved, 256 << 20) << "an arena of a thread, but none of the frames";
  EXPECT_LT(after.resident - before.resident, 32 << 20);
  EXPECT_EQ(work(toy_link(server.port(), 0)), 5) << "the others are served";
  server.join();
  EXPECT_FALSE(server.failure);
}

// The longest of its own frames is read, one byte more is not.
TEST(NetworkTest, OnlyFramesAsLongAsAPushMayBeAreRead) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 20;
  FrameSocket socket(FrameSocket::Role::kListening, {}, {.frame_bytes = kLimit});
  const int port = socket.listen("127.0.0.1", 0);
  RawPeer fits(connected_to(port), "DEALER"), is_long(connected_to(port), "DEALER");
  fits.announce(kLimit);
  EXPECT_FALSE(fits.is_closed_within(0.3));
  is_long.announce(kLimit + 100);  // what encryption may add is let through
  EXPECT_TRUE(is_long.is_closed_within(5));
}

TEST(NetworkTest, NumbersThatCannotBeAreNoMessage) {
  const PushMade good{.record = {.incarnation = 1, .sequence = 1, .examples = 2, .targets = 2}, .lease = 0};
  ASSERT_TRUE(from_worker(header_of(good)));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto is_read = [&](const auto& change) {
    PushMade push = good;
    change(push);
    return from_worker(header_of(push)).has_value();
  };
  for (std::int64_t PushRecord::*count : {&PushRecord::examples, &PushRecord::targets, &PushRecord::local_steps,
                                          &PushRecord::base_version, &PushRecord::sequence}) {
    for (const std::int64_t number : {std::int64_t{-1}, -kMost, kMost})
      EXPECT_FALSE(is_read([&](PushMade& push) { push.record.*count = number; })) << number;
  }
  for (const double factor : {0.0, -1.0, std::nan(""), HUGE_VAL})
    EXPECT_FALSE(is_read([&](PushMade& push) { push.record.factor = factor; })) << factor;
  for (const double loss : {std::nan(""), HUGE_VAL})
    EXPECT_FALSE(is_read([&](PushMade& push) { push.scores.loss_sum = loss; })) << loss;
  for (double PushTimes::*time : {&PushTimes::compute_s, &PushTimes::stall_s, &PushTimes::send_s, &PushTimes::idle_s}) {
    for (const double seconds : {-1e-9, std::nan(""), HUGE_VAL})
      EXPECT_FALSE(is_read([&](PushMade& push) { push.times.*time = seconds; })) << seconds;
  }
  ASSERT_TRUE(from_worker(header_of(PushSent{1, 0.5})));
  for (const double seconds : {-1e-9, std::nan(""), HUGE_VAL})
    EXPECT_FALSE(from_worker(header_of(PushSent{1, seconds}))) << seconds;
  EXPECT_TRUE(is_read([](PushMade& push) { push.scores.sums = {1, -0.5}; }));
  EXPECT_FALSE(is_read([](PushMade& push) { push.scores.sums = std::vector<double>(65); }));
  for (const double sum : {std::nan(""), HUGE_VAL, 1e15})
    EXPECT_FALSE(is_read([&](PushMade& push) { push.scores.sums = {1, sum}; })) << sum;
  EXPECT_FALSE(is_read([](PushMade& push) { push.record.incarnation = 0; }));
  EXPECT_FALSE(is_read([](PushMade& push) { push.lease = kNone; }));
  EXPECT_FALSE(from_worker(header_of(WorkerAgain{.version = -5})));
  EXPECT_FALSE(from_worker(header_of(Hello{.process_id = "s", .where = std::string(2000, 'x')})));
  EXPECT_FALSE(from_worker(header_of(Hello{.process_id = ""})));
  EXPECT_FALSE(from_worker(header_of(Hello{.process_id = "s", .where = "here\nerror: a line of its own"})));
  EXPECT_FALSE(from_worker(frame_of("{\"say\": \"leaving\", \"more\": \"" + std::string(2 << 20, 'x') + "\"}")));
}

// Asking again for weights that it was never given once ended the server.
TEST(NetworkTest, WhoAsksAgainForWhatItWasNeverGivenGetsNothing) {
  ToyServer server(preset_policy("bsp", 2), 5, 1,
                   [](NetworkOptions& options) { options.peer_timeout = 20'000'000'000; });
  server.start();
  Stranger worker(server.port());
  worker.join(0);  // and waits for another one, without weights
  worker.send("{\"say\": \"again\", \"lease\": -9, \"version\": -9}");
  worker.send({header_of(WorkerAgain{})});
  EXPECT_TRUE(worker.receive_kind<LeaseGiven>());
  std::thread other([&] { work(toy_link(server.port(), 1)); });
  EXPECT_TRUE(worker.receive_kind<WeightsGiven>()) << "it lives, and training has begun";
  worker.send({header_of(Leaving{})});
  other.join();
  server.join();
  EXPECT_FALSE(server.failure);
  EXPECT_EQ(server.network().malformed(), 1);
}

TEST(NetworkTest, AConnectionIsOneWorker) {
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  Stranger worker(server.port());
  static_cast<void>(worker.begin(0, toy_layout(1)));
  worker.send({header_of(Hello{.worker = WorkerId{1}, .process_id = "t", .where = "here", .batch = kLease})});
  const auto refusal = worker.receive_kind<Refusal>();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->first.what, "this connection belongs to another worker");
  Stranger other(server.port(), "other");
  static_cast<void>(other.begin(1, toy_layout(1)));
  server.stop();
}

TEST(NetworkTest, APushOfAnotherShapeOrLeaseIsNotCommitted) {
  ToyServer server(preset_policy("asp", 1), 5, 2);
  server.start();
  Stranger worker(server.port());
  const Stranger::Begun begun = worker.begin(0, toy_layout(2));
  const Tensors good = toy_push(0, begun.weights, {1, 2}).tensors;
  const PushRecord record{.incarnation = 1, .sequence = 1, .examples = 2, .targets = 2};
  const auto answer_to = [&](PushRecord of, std::int64_t id, const Tensors& tensors) {
    worker.send(with_tensors(header_of(PushMade{of, {}, {}, id}), tensors));
    return worker.receive_kind<PushAnswered>()->first.answer;
  };
  PushRecord of = record;
  EXPECT_EQ(answer_to(of, begun.lease + 1, good), PushAnswer::kOutOfTurn) << "of another lease";
  of.examples = kLease + 1;
  EXPECT_EQ(answer_to(of, begun.lease, good), PushAnswer::kOutOfTurn) << "more samples than it was given";
  of = record;
  of.payload = Payload::kWeights;
  EXPECT_EQ(answer_to(of, begun.lease, good), PushAnswer::kOutOfTurn) << "of another kind";
  of = record;
  of.incarnation = 2;
  EXPECT_EQ(answer_to(of, begun.lease, good), PushAnswer::kUnknown);
  of = record;
  of.sequence = 2;
  EXPECT_EQ(answer_to(of, begun.lease, good), PushAnswer::kOutOfTurn);
  Tensors other = good;
  std::swap(other.shards[0], other.shards[1]);
  ASSERT_NE(other.shards[0].numel(), good.shards[0].numel());
  EXPECT_EQ(answer_to(record, begun.lease, other), PushAnswer::kOutOfTurn) << "of another shape";
  EXPECT_EQ(answer_to(record, begun.lease, good), PushAnswer::kCommitted);
  server.stop();
  EXPECT_EQ(server.server().progress().version, 1);
}

TEST(NetworkTest, APushForAnotherWorkerIsNotCommitted) {
  ToyServer server(preset_policy("asp", 2), 5, 1);
  server.start();
  Stranger other(server.port(), "other"), worker(server.port());
  other.join(1);
  const Stranger::Begun begun = worker.begin(0, toy_layout(1));
  const PushRecord of_other{.worker = WorkerId{1}, .incarnation = 1, .sequence = 1, .examples = 2, .targets = 2};
  worker.send(
      with_tensors(header_of(PushMade{of_other, {}, {}, begun.lease}), toy_push(0, begun.weights, {1, 2}).tensors));
  const auto answered = worker.receive_kind<PushAnswered>();
  ASSERT_TRUE(answered);
  EXPECT_EQ(answered->first.answer, PushAnswer::kUnknown);
  server.stop();
  EXPECT_EQ(server.server().progress().version, 0);
}

// Of samples that are no longer that worker's.
TEST(NetworkTest, WhatGoesAheadOfAPushIsOfItsLease) {
  ToyServer server(preset_policy("asp", 1), 5, 1);
  server.start();
  Stranger worker(server.port());
  const Stranger::Begun begun = worker.begin(0, toy_layout(1));
  const PushRecord record{.incarnation = 1, .sequence = 1, .examples = 2, .targets = 2};
  const std::int64_t elements = begun.weights.shards[0].numel();
  for (const std::int64_t lease : {begun.lease + 1, begun.lease - 1}) {
    const PushAhead ahead{.push = record.key(), .lease = lease, .shard = 0, .spans = {{0, elements}}};
    worker.send({header_of(FromWorker{ahead}), frame_of(at::ones({elements}, at::kDouble))});
    worker.send({header_of(PushMade{record, {}, {}, begun.lease, true}), frame_of(at::zeros({2}, at::kDouble))});
    EXPECT_TRUE(worker.receive_kind<ServerAgain>()) << "nothing of it has come";
  }
  server.stop();
  EXPECT_EQ(server.server().progress().version, 0);
}

// Writes slowly, so that what is sent meanwhile is read before it is durable.
class SlowJournal : public PushJournal {
 public:
  void write_push(const CommittedPush&) override { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }
  void write_update(const UpdateRecord&) override {}
  void begin(const Weights&, const std::vector<CommittedPush>&) override {}
  [[nodiscard]] bool must_make_durable() const override { return true; }
  void make_durable() override { is_durable = true; }

  std::atomic<bool> is_durable = false;
};

TEST(NetworkTest, APushThatComesAgainBeforeItIsDurableIsAnsweredOnce) {
  SlowJournal journal;
  ToyServer server(preset_policy("asp", 1), 5, 1, [&](NetworkOptions& options) { options.journal = &journal; });
  server.start();
  Stranger worker(server.port());
  const Stranger::Begun begun = worker.begin(0, toy_layout(1));
  const PushRecord record{.incarnation = 1, .sequence = 1, .examples = 2, .targets = 2};
  const Tensors tensors = toy_push(0, begun.weights, {1, 2}).tensors;
  for (int times = 0; times < 2; ++times)
    worker.send(with_tensors(header_of(PushMade{record, {}, {}, begun.lease}), tensors));
  const auto answered = worker.receive_kind<PushAnswered>();
  ASSERT_TRUE(answered);
  EXPECT_EQ(answered->first.answer, PushAnswer::kCommitted);
  EXPECT_TRUE(journal.is_durable);
  server.stop();
}

TEST(NetworkTest, WhoLeavesGetsNoMoreWeights) {
  ToyServer server(preset_policy("asp", 1), 5, 1,
                   [](NetworkOptions& options) { options.leave_grace = options.peer_timeout = 10'000'000'000; });
  server.start();
  Stranger worker(server.port());
  const Stranger::Begun begun = worker.begin(0, toy_layout(1));
  worker.send({header_of(Leaving{})});
  worker.send(with_tensors(
      header_of(PushMade{{.incarnation = 1, .sequence = 1, .examples = 2, .targets = 2}, {}, {}, begun.lease}),
      toy_push(0, begun.weights, {1, 2}).tensors));
  EXPECT_TRUE(worker.receive_kind<PushAnswered>()) << "its last push counts";
  for (int heartbeats = 0; heartbeats < 5;) {
    const auto received = worker.receive();
    ASSERT_TRUE(received);
    const auto message = from_server(received->frames.front());
    ASSERT_TRUE(message);
    EXPECT_FALSE(std::holds_alternative<WeightsGiven>(*message));
    if (std::holds_alternative<ServerHeartbeat>(*message)) ++heartbeats;
  }
  server.stop();
  EXPECT_EQ(server.server().progress().version, 1);
}

// That is another process, of which the server hears within the moment that it waits for the one before.
TEST(NetworkTest, WhoComesBackAtOnceNeedNotWaitForTheOneThatLeft) {
  ToyServer server(preset_policy("bsp", 2), 5, 1,
                   [](NetworkOptions& options) { options.leave_grace = options.peer_timeout = 10'000'000'000; });
  server.start();
  Stranger stays(server.port(), "stays"), leaves(server.port(), "leaves"), comes(server.port(), "comes");
  stays.join(0);
  leaves.join(1);
  leaves.send({header_of(Leaving{})});
  const PushRecord of_no_incarnation{
      .worker = WorkerId{1}, .incarnation = 9, .sequence = 1, .examples = 2, .targets = 2};
  leaves.send({header_of(PushMade{of_no_incarnation, {}, {}, 1})});
  ASSERT_TRUE(leaves.receive_kind<PushAnswered>()) << "the server has heard what came before";
  comes.send({header_of(Hello{.worker = WorkerId{1}, .process_id = "t", .where = "there", .batch = kLease})});
  const auto welcome = comes.receive_kind<Welcome>();
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->first.incarnation.number, 2);
  server.stop();
  const auto of_kind = [&](WorkerEvent::What what) {
    return std::ranges::count(server.events, what, &WorkerEvent::what);
  };
  EXPECT_EQ(of_kind(WorkerEvent::What::kLeft), 1);
  EXPECT_EQ(of_kind(WorkerEvent::What::kLost), 0);
}

}  // namespace
}  // namespace sluice::ps::test
