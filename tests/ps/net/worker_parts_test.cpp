// What a worker does about parts of weights that are lost. The server that sends them is played here.
#include "ps/net/worker_parts.h"

#include <gtest/gtest.h>

#include "ps/net/toy.h"

namespace sluice::ps::test {
namespace {

const Compression kChanges{.kind = Compression::Kind::kBf16};

class LostParts : public testing::Test {
 protected:
  void SetUp() override {
    parts_.begin(layout_);
    for (int i = 0; i < 500 && worker_.empty(); ++i) {
      socket_.wait(std::chrono::milliseconds(10));
      if (const auto received = socket_.next()) worker_ = received->routing_id;
    }
    ASSERT_FALSE(worker_.empty());
  }
  static PartVersion version(std::int64_t number) { return {{1, 7}, number}; }
  // As the server would after the update of that number; or does not, but believes so.
  void send(std::int64_t number, bool arrives = true) {
    const Tensors weights{.shards = {at::full({layout_.shards[1].elements}, static_cast<double>(number), at::kDouble)},
                          .statistics = at::empty({0}, at::kDouble)};
    const PackedWeights packed = pull_.compress(weights);
    const WeightsPart part{.incarnation = {1, 7},
                           .version = number,
                           .sequence = packed.sequence,
                           .is_whole = packed.is_whole,
                           .first_shard = 1};
    if (arrives) socket_.send(worker_, with_packed(header_of(ShardsToWorker{part}), packed.packed));
  }
  void send_heartbeat(std::int64_t number) {
    socket_.send(worker_, {header_of(ShardsToWorker{WeightsHeartbeat{{1, 7}, number}})});
  }
  template <typename Condition>
  [[nodiscard]] static bool comes(const Condition& condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  Layout layout_ = toy_layout(2);
  FrameSocket socket_{FrameSocket::Role::kListening, {}, kFromServers};
  WorkerParts parts_{{.servers = {{"127.0.0.1", socket_.listen("127.0.0.1", 0)}},
                      .process_id = "worker",
                      .heartbeat_interval = kHeartbeatInterval,
                      .pull = kChanges,
                      .on_change = [] {}}};
  std::string worker_;
  PullCompressor pull_{kChanges, layout_};
};

TEST_F(LostParts, AreMissedUntilTheyAreHere) {
  send(1);
  ASSERT_TRUE(comes([&] { return parts_.has(version(1)); }));
  send_heartbeat(1);
  send(2, /*arrives=*/false);
  send(3);  // what has changed since the second: nothing can be made of it
  EXPECT_FALSE(parts_.has_lost(version(3))) << "before the beat that follows it may be under way";
  send_heartbeat(3);
  EXPECT_TRUE(comes([&] { return parts_.has_lost(version(3)); }));
  EXPECT_TRUE(parts_.has_lost(version(3))) << "whoever is asked for it may not hear of it, and is asked again";
  EXPECT_FALSE(parts_.has(version(3)));
  pull_.restart();
  send(3);
  EXPECT_TRUE(comes([&] { return parts_.has(version(3)); }));
  EXPECT_FALSE(parts_.has_lost(version(3)));
}

// Their server was started again within the same incarnation of the worker: it knows nothing of what the worker has.
TEST_F(LostParts, ChangesOfAnotherProcessAreNotTakenForThoseOfTheFirst) {
  send(1);
  ASSERT_TRUE(comes([&] { return parts_.has(version(1)); }));
  pull_ = PullCompressor(kChanges, layout_);
  send(2, /*arrives=*/false);
  send(3);
  send_heartbeat(3);
  EXPECT_TRUE(comes([&] { return parts_.has_lost(version(3)); }));
  EXPECT_FALSE(parts_.has(version(3)));
}

// A step that runs is not asked for again: the server would take it for one that begins anew.
TEST_F(LostParts, AreNotMissedOnceTheyWereTaken) {
  send(1, /*arrives=*/false);
  send_heartbeat(1);
  ASSERT_TRUE(comes([&] { return parts_.has_lost(version(1)); }));
  pull_.restart();
  send(1);
  send_heartbeat(1);
  ASSERT_TRUE(comes([&] { return parts_.has(version(1)); }));
  Tensors weights;
  EXPECT_FALSE(parts_.take(version(2), weights)) << "of another version";
  EXPECT_TRUE(weights.shards.empty());
  EXPECT_TRUE(parts_.take(version(1), weights));
  EXPECT_EQ(weights.shards.size(), 1U);
  EXPECT_FALSE(parts_.has_lost(version(1)));
}

}  // namespace
}  // namespace sluice::ps::test
