// What a server may say to a worker that is not, or no longer, what the worker expects: it begins anew, goes on, or
// ends with a sentence that says why.
#include <sys/socket.h>

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"
#include "ps/net/raw_peer.h"
#include "ps/net/toy.h"
#include "support/long_tests.h"
#include "support/paused_process.h"

namespace sluice::ps::test {
namespace {

using testing::HasSubstr;

// Speaks as a server does to one worker, but says what it likes.
class FakeServer {
 public:
  [[nodiscard]] int port() const { return port_; }

  void send(const Frames& frames) { socket_.send(routing_id_, frames); }
  void send(const FromServer& message) { send(Frames{header_of(message)}); }
  void give(std::int64_t id, const std::vector<std::int64_t>& samples) {
    send(with_samples(header_of(LeaseGiven{id, 0}), samples));
  }
  void give_weights(std::int64_t version, int shards = 2) {
    const auto ones = [](std::int64_t elements) { return at::ones({elements}, at::kDouble); };
    Tensors weights{.statistics = ones(2)};
    for (const Shard& shard : toy_layout(shards).shards) weights.shards.push_back(ones(shard.elements));
    send(with_tensors(header_of(WeightsGiven{version}), weights));
  }
  // Answers the last greeting.
  void welcome(std::int64_t incarnation, std::int64_t version = 0) {
    send(Welcome{.incarnation = {incarnation}, .version = version, .layout = toy_layout(2), .abandoned = abandons_});
  }

  // The next message of this kind that is as wanted; a failure when none comes.
  template <typename T, typename Wanted>
  T receive(const Wanted& wanted) {
    const Nanoseconds until = now_ns() + 20'000'000'000;
    while (now_ns() < until) {
      socket_.wait(std::chrono::milliseconds(10));
      while (auto received = socket_.next()) {
        routing_id_ = received->routing_id;
        const auto message = from_worker(received->frames.front());
        if (const auto* hello = message ? std::get_if<Hello>(&*message) : nullptr) abandons_ = hello->abandons;
        if (message && std::holds_alternative<T>(*message) && wanted(std::get<T>(*message)))
          return std::get<T>(*message);
      }
    }
    throw std::runtime_error("the worker did not say what it should");
  }
  template <typename T>
  T receive() {
    return receive<T>([](const T&) { return true; });
  }
  void let_in(std::int64_t incarnation = 1) {
    static_cast<void>(receive<Hello>());
    welcome(incarnation);
  }
  void begin_step(std::int64_t lease, std::int64_t version) {
    give(lease, {1, 2});
    give_weights(version);
  }

 private:
  FrameSocket socket_{FrameSocket::Role::kListening, {}, {}};
  int port_ = socket_.listen("127.0.0.1", 0);
  std::string routing_id_;
  Incarnation abandons_;
};

// waits: for its server, at first and later.
std::future<int> a_worker(int port, Nanoseconds waits = 5'000'000'000) {
  return std::async(std::launch::async, [port, waits] {
    LinkOptions options = toy_link(port, 0);
    options.connect_timeout = options.peer_timeout = waits;
    return work(options);
  });
}

// How the worker has ended.
std::string error_of(std::future<int>& worker) {
  if (worker.wait_for(std::chrono::seconds(10)) != std::future_status::ready) return "it hangs";
  try {
    worker.get();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return concat("another exception: ", error.what());
  }
  return "none";
}

class NotCommitted : public testing::TestWithParam<FromServer> {};

TEST_P(NotCommitted, AWorkerWhosePushIsNotKnownBeginsAnew) {
  FakeServer server;
  auto worker = a_worker(server.port());
  const Hello first = server.receive<Hello>();
  EXPECT_EQ(first.abandons, Incarnation{});
  server.welcome(1);
  server.begin_step(0, 7);
  const PushMade push = server.receive<PushMade>();
  EXPECT_EQ(std::tuple(push.record.incarnation, push.record.sequence, push.record.base_version, push.lease),
            std::tuple(1, 1, 7, 0));
  server.send(GetParam());
  const Hello second = server.receive<Hello>([](const Hello& hello) { return hello.abandons.number == 1; });
  EXPECT_EQ(second.process_id, first.process_id);
  server.welcome(2, 9);
  server.begin_step(1, 9);
  const PushMade again = server.receive<PushMade>();
  EXPECT_EQ(std::tuple(again.record.incarnation, again.record.sequence, again.record.base_version, again.lease),
            std::tuple(2, 1, 9, 1));
  server.send(PushAnswered{1, PushAnswer::kCommitted});
  EXPECT_EQ(server.receive<PushSent>().sequence, 1);
  server.send(Over{});
  server.receive<Leaving>();
  EXPECT_EQ(error_of(worker), "none");
}
INSTANTIATE_TEST_SUITE_P(Answers, NotCommitted,
                         testing::Values(FromServer{PushAnswered{1, PushAnswer::kOutOfTurn}},
                                         FromServer{PushAnswered{1, PushAnswer::kUnknown}}, FromServer{Who{}}));

TEST(HostileServerTest, AnIncarnationMayBeLessThanTheLast) {
  FakeServer server;
  auto worker = a_worker(server.port());
  server.let_in(/*incarnation=*/5);
  server.send(Who{});
  server.receive<Hello>([](const Hello& hello) { return hello.abandons.number == 5; });
  server.welcome(3);
  server.begin_step(0, 0);
  EXPECT_EQ(server.receive<PushMade>().record.incarnation, 3);
  server.send(Over{});
  EXPECT_EQ(error_of(worker), "none");
}

// It would wait for weights that servers of shards send to another incarnation. What a welcome tells of pushes is of
// the incarnation that its greeting abandons: another one's is no answer.
TEST(HostileServerTest, AWorkerThatTheServerHasInAnotherIncarnationGreetsAnew) {
  for (const FromServer& of_another :
       {FromServer{ServerHeartbeat{.of = {2, 0}}}, FromServer{ServerHeartbeat{.of = {1, 9}}},
        FromServer{Welcome{.incarnation = {2}, .layout = toy_layout(2)}}}) {
    FakeServer server;
    auto worker = a_worker(server.port());
    server.let_in(1);
    server.send(of_another);
    server.receive<Hello>([](const Hello& hello) { return hello.abandons == Incarnation{1, 0}; });
    server.send(Welcome{.incarnation = {3}, .layout = toy_layout(2)});  // to one that abandons none
    server.welcome(2);
    server.send(ServerHeartbeat{.of = {2, 0}});
    server.begin_step(0, 0);
    EXPECT_EQ(server.receive<PushMade>().record.incarnation, 2);
    server.send(Over{});
    EXPECT_EQ(error_of(worker), "none");
  }
}

TEST(HostileServerTest, OfLeasesThatWereNotAskedForTheLastCounts) {
  FakeServer server;
  auto worker = a_worker(server.port());
  server.let_in();
  server.begin_step(0, 0);
  EXPECT_EQ(server.receive<PushMade>().lease, 0);
  for (const std::int64_t lease : {9, 4, 1000}) server.give(lease, {3});  // 4 has been overtaken
  server.send(PushAnswered{1, PushAnswer::kCommitted});
  server.give_weights(1);
  const std::int64_t next = server.receive<PushMade>([](const PushMade& push) { return push.lease != 0; }).lease;
  EXPECT_THAT(next, testing::AnyOf(9, 1000));
  server.send(Over{});
  EXPECT_EQ(error_of(worker), "none");
}

// Before the server knows that the worker has heard it, it may not close the connection: what has not been read yet
// would be lost with it.
TEST(HostileServerTest, AWorkerThatComesTooLateSaysThatItHasHeardSo) {
  FakeServer server;
  auto was_over = std::async(std::launch::async, [&] { return NetworkLink(toy_link(server.port(), 0)).was_over(); });
  server.receive<Hello>();
  server.send(Over{});
  server.receive<Leaving>();
  EXPECT_TRUE(was_over.get());
}

// This process was stopped for longer than a push may take.
TEST(HostileServerTest, APauseIsNoTimeThatThePushHasTaken) {
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "long: it takes 7 s; waits_test.cpp has a pause of the server";
  const int code = sluice::test::run_and_pause(std::chrono::milliseconds(500), std::chrono::milliseconds(6500), [] {
    FakeServer server;
    auto worker = std::async(std::launch::async, [&] {
      LinkOptions options = toy_link(server.port(), 0);
      options.connect_timeout = 6'000'000'000;
      options.peer_timeout = 20'000'000'000;
      return work(options);
    });
    server.let_in();
    server.begin_step(0, 0);
    server.receive<PushMade>();
    sluice::test::run_for(std::chrono::milliseconds(600));
    server.send(Over{});
    return error_of(worker) == "none" ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

TEST(HostileServerTest, TheEndMayComeTwiceAndAtOnce) {
  for (const bool is_in : {false, true}) {
    FakeServer server;
    auto worker = a_worker(server.port());
    server.receive<Hello>();
    if (is_in) server.welcome(1);
    server.send(Over{5, "of this"});
    server.send(Over{-77, "of that"});
    EXPECT_THAT(error_of(worker), HasSubstr("the server has ended the run: of th"));
  }
}

constexpr const char* kNobody = "no parameter server has answered";
constexpr const char* kSilent = "has been silent for";
constexpr Nanoseconds kShortly = 500'000'000;

struct Nonsense {
  const char* name;
  std::function<void(FakeServer&)> send;
  const char* error;
};

class ServerNonsense : public testing::TestWithParam<Nonsense> {};

TEST_P(ServerNonsense, EndsAWorkerWithASentence) {
  FakeServer server;
  const std::string_view error = GetParam().error;
  const bool must_wait = error == kNobody || error == kSilent;
  auto worker = must_wait ? a_worker(server.port(), kShortly) : a_worker(server.port());
  server.receive<Hello>();
  GetParam().send(server);
  EXPECT_THAT(error_of(worker), HasSubstr(error));
}

Layout changed_layout(const std::function<void(Layout&)>& change) {
  Layout layout = toy_layout(2);
  change(layout);
  return layout;
}

void welcome_changed(FakeServer& server, const std::function<void(Layout&)>& change) {
  server.send(Welcome{{1}, 0, changed_layout(change)});
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ServerNonsense,
    testing::Values(
        Nonsense{"weights_of_another_layout",
                 [](FakeServer& server) {
                   server.welcome(1);
                   server.give(0, {1});
                   server.give_weights(0, /*shards=*/1);
                 },
                 "has sent weights of another layout"},
        Nonsense{"a_lease_of_nothing",
                 [](FakeServer& server) {
                   server.welcome(1);
                   server.give(0, {});
                 },
                 "has sent invalid samples"},
        Nonsense{"a_negative_sample",
                 [](FakeServer& server) {
                   server.welcome(1);
                   server.give(0, {1, -2});
                 },
                 "has sent invalid samples"},
        Nonsense{"more_samples_than_it_wants",
                 [](FakeServer& server) {
                   server.welcome(1);
                   server.give(0, std::vector<std::int64_t>(1'000'000, 1));
                 },
                 "has sent invalid samples"},
        Nonsense{"bytes_that_are_no_samples",
                 [](FakeServer& server) {
                   server.welcome(1);
                   server.send(Frames{header_of(LeaseGiven{0, 0}), frame_of(std::string("abc"))});
                 },
                 "has sent invalid samples"},
        Nonsense{"another_model_later",
                 [](FakeServer& server) {
                   server.welcome(1);
                   server.send(Welcome{
                       {2}, 0, changed_layout([](Layout& layout) { std::swap(layout.shards[0], layout.shards[1]); })});
                 },
                 "has come back with another model"},
        Nonsense{"a_life_before_the_first", [](FakeServer& server) { server.welcome(0); }, kNobody},
        Nonsense{"a_life_below_nothing", [](FakeServer& server) { server.welcome(-4); }, kNobody},
        Nonsense{"a_life_that_is_no_int", [](FakeServer& server) { server.welcome((std::int64_t{1} << 32) + 1); },
                 kNobody},
        Nonsense{"a_layout_of_no_numbers",
                 [](FakeServer& server) {
                   welcome_changed(server, [](Layout& layout) { layout.dtype = at::ScalarType::Undefined; });
                 },
                 kNobody},
        Nonsense{"a_layout_with_holes",
                 [](FakeServer& server) {
                   welcome_changed(server, [](Layout& layout) { layout.shards[0].pieces.pop_back(); });
                 },
                 kNobody},
        Nonsense{"a_layout_beyond_its_parameters",
                 [](FakeServer& server) {
                   welcome_changed(server, [](Layout& layout) { layout.shards[0].pieces[0].parameter = 1 << 30; });
                 },
                 kNobody},
        Nonsense{"a_layout_below_nothing",
                 [](FakeServer& server) {
                   welcome_changed(server, [](Layout& layout) { layout.statistics[0].second = -2; });
                 },
                 kNobody},
        Nonsense{"a_layout_of_all_memory",
                 [](FakeServer& server) {
                   welcome_changed(server, [](Layout& layout) {
                     layout.parameters[0].sizes = {std::int64_t{1} << 40, std::int64_t{1} << 40};
                   });
                 },
                 kNobody},
        Nonsense{
            "nothing_but_noise",
            [](FakeServer& server) {
              server.welcome(1);
              const Nanoseconds until = now_ns() + 1'500'000'000;
              while (now_ns() < until) {
                server.send(Frames{frame_of(std::string("{\"say\": \"beat\"}")), frame_of(std::string(100'000, 'x'))});
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
              }
            },
            kSilent}),
    [](const auto& info) { return std::string(info.param.name); });

// Frames of any length come from a server, since its model decides: what is announced is reserved, but not touched.
TEST(HostileServerTest, WhatIsOnlyAnnouncedIsNotTouched) {
  for (const std::uint64_t bytes : {std::uint64_t{10} << 30, std::uint64_t{1} << 62}) {
    const int listener = comm::listen_on("127.0.0.1", 0);
    auto worker = a_worker(comm::own_address(listener).port, kShortly);
    RawPeer server(::accept(listener, nullptr, nullptr), "ROUTER");
    const MemoryUse before = memory_use();
    server.announce(bytes);
    EXPECT_THAT(error_of(worker), HasSubstr(kNobody));
    EXPECT_LT(memory_use().resident - before.resident, 64 << 20);
    ::close(listener);
  }
}

}  // namespace
}  // namespace sluice::ps::test
