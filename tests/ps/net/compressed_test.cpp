// Compressed pushes and pulls between a worker and its servers: what is learnt is what the same steps by plain formulas
// give, also where messages are lost and servers are killed, so that nothing of what was left out is lost or counts
// twice.
#include <gtest/gtest.h>

#include <cmath>

#include "ps/net/lossy_wire.h"
#include "ps/net/push_under_way.h"
#include "ps/net/toy_shards.h"

namespace sluice::ps::test {
namespace {

using sluice::test::TempDir;

constexpr LinkCompression kBoth{.push = {Compression::Kind::kTopK, 0.5}, .pull = {Compression::Kind::kBf16}};

// The k largest magnitudes, of equal ones the first.
at::Tensor largest(const at::Tensor& values, double ratio) {
  const auto kept = static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(values.numel())));
  const at::Tensor indices = values.abs().argsort(/*stable=*/true, 0, /*descending=*/true).narrow(0, 0, kept);
  return at::zeros_like(values).scatter(0, indices, values.index_select(0, indices));
}

// A shard, its server and its one worker.
struct ByHand {
  at::Tensor weights, momentum, shadow, residual;

  explicit ByHand(const at::Tensor& values)
      : weights(values.clone()),
        momentum(at::zeros_like(values)),
        shadow(values.clone()),
        residual(at::zeros_like(values)) {}

  void step(const std::vector<std::int64_t>& samples, bool is_first) {
    if (!is_first) shadow += (weights - shadow).to(at::kBFloat16).to(at::kDouble);
    residual += toy_gradient(shadow, samples);
    const at::Tensor sent = largest(residual, kBoth.push.ratio);
    residual -= sent;
    momentum = 0.5 * momentum + sent / static_cast<double>(samples.size());
    weights -= kRate * momentum;
  }
};

at::Tensor learnt_by_hand(int shards, std::int64_t updates) {
  const Layout layout = toy_layout(shards);
  std::vector<ByHand> all;
  for (const at::Tensor& shard : to_shards(layout, {at::arange(6, at::kDouble), at::ones({5}, at::kDouble)}))
    all.emplace_back(shard);
  data::Ledger ledger({.seed = 3, .samples = kSamples});
  for (std::int64_t update = 0; update < updates; ++update) {
    const data::Lease lease = *ledger.lease(kLease);
    for (ByHand& shard : all) shard.step(lease.samples, update == 0);
    ledger.push_all(lease.id);
  }
  std::vector<at::Tensor> weights;
  for (const ByHand& shard : all) weights.push_back(shard.weights);
  return at::cat(from_shards(layout, weights));
}

void expect_learnt(const at::Tensor& weights, int shards, std::int64_t updates) {
  EXPECT_LE((weights - learnt_by_hand(shards, updates)).abs().max().item<double>(), 1e-12);
  EXPECT_GT((weights - bulk_synchronous_by_hand(1, updates)).abs().max().item<double>(), 1e-6)
      << "it is not what is learnt without";
}

void compress(ShardServerOptions& options) { options.compression = kBoth; }

class Compressed : public testing::TestWithParam<int> {};

TEST_P(Compressed, OneWorkerAndItsServersLearnWhatTheFormulasSay) {
  constexpr std::int64_t kUpdates = 30;
  const int servers = GetParam();
  std::vector<std::unique_ptr<ToyShardServer>> others;
  std::vector<const ToyShardServer*> all;
  std::vector<ServerAddress> addresses;
  for (int i = 1; i < servers; ++i) {
    all.push_back(others.emplace_back(std::make_unique<ToyShardServer>(std::filesystem::path{}, compress)).get());
    addresses.push_back(others.back()->address());
  }
  ToyServer lead(
      preset_policy("asp", 1), kUpdates, servers, [](NetworkOptions& options) { options.compression = kBoth; },
      std::nullopt, nullptr, addresses);
  lead.start();
  LinkOptions options = toy_link(lead.port(), 0);
  options.others = addresses;
  options.compression = kBoth;
  work(options);
  lead.join();
  for (auto& other : others) other->join();
  EXPECT_FALSE(lead.failure);
  expect_learnt(in_order(lead, all), servers, kUpdates);
}

INSTANTIATE_TEST_SUITE_P(Servers, Compressed, testing::Values(1, 3));

// A worker that has not got weights is sent them whole, which is another shadow than the formulas have: only pushes are
// compressed here.
TEST(CompressedTest, NothingIsLostWithMessagesNorWithAServerThatIsKilled) {
  constexpr std::int64_t kUpdates = 40;
  constexpr LinkCompression kPush{.push = kBoth.push};
  const TempDir dir;
  const auto change = [&](ShardServerOptions& options) { options.compression = kPush; };
  ToyShardServer other(dir.path() / "1", change);
  LossyWire to_other(other.address().port, 0.1);
  ToyServer lead(preset_policy("bsp", 1), kUpdates, 2,
                 [&](NetworkOptions& options) {
                   options.compression = kPush;
                   options.peer_timeout = 10'000'000'000;
                 },
                 std::nullopt, nullptr, {other.address()});
  lead.start();
  LossyWire to_lead(lead.port(), 0.1);
  std::thread worker([&] {
    LinkOptions options = toy_link(to_lead.port(), 0);
    options.others = {{"127.0.0.1", to_other.port()}};
    options.compression = kPush;
    options.peer_timeout = 10'000'000'000;
    try {
      work(options);
    } catch (const Error&) {  // the last words of the server were lost
    }
  });
  for (int kill = 0; kill < 3; ++kill) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    other.kill();
    other.start();
  }
  lead.join();
  worker.join();
  other.halt();
  EXPECT_FALSE(lead.failure);
  EXPECT_GT(to_lead.lost() + to_other.lost(), 3);
  // With exact pulls the shadow is the weights: the same formulas with another pull.
  const Layout layout = toy_layout(2);
  data::Ledger ledger({.seed = 3, .samples = kSamples});
  std::vector<ByHand> shards;
  for (const at::Tensor& shard : to_shards(layout, {at::arange(6, at::kDouble), at::ones({5}, at::kDouble)}))
    shards.emplace_back(shard);
  for (std::int64_t update = 0; update < kUpdates; ++update) {
    const data::Lease lease = *ledger.lease(kLease);
    for (ByHand& shard : shards) {
      shard.shadow = shard.weights.clone();
      shard.step(lease.samples, /*is_first=*/true);
    }
    ledger.push_all(lease.id);
  }
  const at::Tensor expected = at::cat(from_shards(layout, {shards[0].weights, shards[1].weights}));
  EXPECT_LE((in_order(lead, {&other}) - expected).abs().max().item<double>(), 1e-12);
}

// A worker that lacks the weights cannot apply a change of them.
TEST(CompressedTest, WeightsThatAreAskedForAgainComeWholeFromOtherServersToo) {
  ToyShardServer other({}, compress);
  ToyServer lead(preset_policy("asp", 1), 5, 2, [](NetworkOptions& options) { options.compression = kBoth; },
                 std::nullopt, nullptr, {other.address()});
  lead.start();
  FrameSocket to_lead(FrameSocket::Role::kConnecting, "worker", kFromServers);
  FrameSocket to_other(FrameSocket::Role::kConnecting, "worker", kFromServers);
  to_lead.connect("127.0.0.1", lead.port());
  to_other.connect("127.0.0.1", other.address().port);
  int parts = 0;
  for (int i = 0; i < 500 && parts < 3; ++i) {
    to_lead.send({}, {header_of(Hello{.worker = WorkerId{0}, .process_id = "s", .where = "here", .batch = kLease})});
    to_lead.send({}, {header_of(WorkerAgain{})});
    to_other.wait(std::chrono::milliseconds(20));
    while (const auto received = to_other.next()) {
      const auto message = shards_to_worker(received->frames.front());
      if (!message || !std::holds_alternative<WeightsPart>(*message)) continue;
      EXPECT_TRUE(std::get<WeightsPart>(*message).is_whole);
      ++parts;
    }
  }
  EXPECT_GE(parts, 3);
  lead.kill();
  other.halt();
}

// What a worker has not sent is of the run that its server had: another run has nothing to do with it.
TEST(PushUnderWay, WhatIsLeftOutOfOneRunIsNotAddedToAnother) {
  const Layout layout = toy_layout(1);
  const auto pushed = [&] {
    Tensors tensors = room_for(layout);
    for (at::Tensor& shard : tensors.shards) shard.copy_(at::arange(shard.numel(), at::kDouble));
    return tensors;
  };
  const auto left_out = [](const PushUnderWay& push) {
    double sum = 0;
    for (const auto& [name, residual] : push.residuals()) sum += residual.abs().sum().item<double>();
    return sum;
  };
  PushUnderWay push;
  push.begin(kBoth.push, layout);
  push.begin_incarnation({.incarnation = {1}, .layout = layout, .run = "one"});
  PushRecord record{.incarnation = 1, .targets = 1};
  static_cast<void>(push.pack(record, pushed()));
  push.forget(/*was_committed=*/true);
  EXPECT_GT(left_out(push), 0);
  push.begin_incarnation({.incarnation = {2}, .layout = layout, .run = "one"});
  EXPECT_GT(left_out(push), 0) << "its server has come back";
  push.begin_incarnation({.incarnation = {1}, .layout = layout, .run = "other"});
  EXPECT_EQ(left_out(push), 0);
  EXPECT_EQ(push.run(), "other");
}

}  // namespace
}  // namespace sluice::ps::test
