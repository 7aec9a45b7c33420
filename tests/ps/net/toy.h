// toy: a server, a ledger and workers of a model of a few numbers, each worker a thread with a connection of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "ps/net/network_link.h"
#include "ps/net/network_server.h"

namespace sluice::ps::test {

inline constexpr std::int64_t kSamples = 60, kLease = 4;
inline constexpr Nanoseconds kHeartbeatInterval = 20'000'000;
inline constexpr Nanoseconds kShortPeerTimeout = 400'000'000;  // for tests in which a worker is given up
inline constexpr double kRate = 0.125;                         // and a momentum of 0.5: products with them are exact

inline Layout toy_layout(int shards) {
  return make_layout({{"a", {3, 2}, {2, 1}}, {"b", {5}, {1}}}, {{"mean", 2}},
                     {.shards = shards, .split_bound = 4, .dtype = at::kDouble});
}

// Half the squared distance of each weight to what the samples say, summed over them: every sample counts.
inline at::Tensor toy_gradient(const at::Tensor& weights, const std::vector<std::int64_t>& samples) {
  at::Tensor sum = at::zeros_like(weights);
  for (const std::int64_t sample : samples) sum += weights - 0.1 * static_cast<double>(sample);
  return sum;
}

inline Push toy_push(std::int64_t version, const Tensors& weights, const std::vector<std::int64_t>& samples) {
  Push push{.record = {.base_version = version,
                       .examples = static_cast<std::int64_t>(samples.size()),
                       .targets = static_cast<std::int64_t>(samples.size())}};
  for (const at::Tensor& shard : weights.shards) push.tensors.shards.push_back(toy_gradient(shard, samples));
  push.tensors.statistics = at::full({2}, 0.5, at::kDouble);
  return push;
}

// After updates with an odd number all of its shards go ahead of it where they may, cut anywhere and in any order.
inline void send(NetworkLink& link, Push push) {
  if (!link.takes_spans() || push.record.base_version % 2 == 0) return link.push(std::move(push));
  std::minstd_rand random(static_cast<std::uint32_t>(push.record.base_version));
  std::vector<std::pair<std::size_t, ShardSpan>> spans;
  for (std::size_t s = 0; s < push.tensors.shards.size(); ++s) {
    for (std::int64_t begin = 0, end = push.tensors.shards[s].numel(); begin < end;) {
      const auto elements = std::min<std::int64_t>(1 + static_cast<std::int64_t>(random() % 3), end - begin);
      spans.push_back({s, {begin, elements}});
      begin += elements;
    }
  }
  std::ranges::shuffle(spans, random);
  for (const auto& [shard, span] : spans)
    link.push_ahead(shard, {span}, push.tensors.shards[shard].narrow(0, span.offset, span.elements).clone());
  push.tensors.shards.clear();
  link.push(std::move(push));
}

inline Tensors room_for(const Layout& layout) {
  Tensors tensors;
  for (const Shard& shard : layout.shards) tensors.shards.push_back(at::empty({shard.elements}, layout.dtype));
  tensors.statistics = at::empty({layout.statistics_elements()}, layout.dtype);
  return tensors;
}

// Where a server begins that goes on from another one.
struct ToySaved {
  ServerState server;
  data::LedgerState ledger;
};

// A server in a thread of its own, with what it has told.
class ToyServer {
 public:
  explicit ToyServer(const SyncPolicy& policy, std::int64_t updates, int shards = 2,
                     const std::function<void(NetworkOptions&)>& change = {},
                     const std::optional<ToySaved>& saved = std::nullopt,
                     const std::function<void(Server&, data::Ledger&, NetworkOptions&)>& prepare = {},
                     const std::vector<ServerAddress>& others = {})
      : links_(connect(toy_layout(shards), others)),
        server_(toy_layout(shards), toy_values(shards, saved),
                saved ? saved->server.weights.statistics : at::zeros({2}, at::kDouble),
                {.policy = policy,
                 .optimizer = {.kind = "momentum", .momentum = 0.5},
                 .lr = [](const ServerProgress&) { return kRate; },
                 .others = as_others(links_)},
                saved ? saved->server.progress : ServerProgress{}),
        ledger_(saved ? data::Ledger({.seed = 3, .samples = kSamples}, saved->ledger)
                      : data::Ledger({.seed = 3, .samples = kSamples})) {
    if (saved) server_.resume_from(saved->server);
    NetworkOptions options{.last_version = updates,
                           .heartbeat_interval = kHeartbeatInterval,
                           .peer_timeout = 20'000'000'000,
                           .connect_timeout = 5'000'000'000,
                           .drain_timeout = 500'000'000};
    options.on_event = [this](const WorkerEvent& event) { events.push_back(event); };
    if (change) change(options);
    if (prepare) prepare(server_, ledger_, options);
    load_others(saved);
    options.others = links();
    network_.emplace(server_, ledger_, options);
  }
  ~ToyServer() { stop(); }

  [[nodiscard]] int port() const { return network_->port(); }
  [[nodiscard]] std::vector<ShardLink*> links() const {
    std::vector<ShardLink*> links;
    for (const auto& link : links_) links.push_back(link.get());
    return links;
  }
  void start() {
    thread_ = std::thread([this] {
      try {
        while (!must_stop_ && !network_->is_over()) take(network_->next(50'000'000));
      } catch (...) {
        failure = std::current_exception();
      }
      if (is_killed_) return;
      network_->end(failure ? Over{5, "it has failed"} : Over{});
      while (!network_->is_over()) take(network_->next(50'000'000));
    });
  }
  // Until its run is over.
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  void stop() {
    must_stop_ = true;
    join();
  }
  // Without a word to anybody.
  void kill() {
    is_killed_ = true;
    stop();
  }

  // After join().
  [[nodiscard]] bool keep_alive_for_others(Nanoseconds limit) { return network_->keep_alive_for_others(limit); }
  [[nodiscard]] const data::Ledger& ledger() const { return ledger_; }
  [[nodiscard]] const Server& server() const { return server_; }
  [[nodiscard]] const NetworkServer& network() const { return *network_; }
  [[nodiscard]] at::Tensor weights() const {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& shard : server_.weights().tensors.shards) parts.push_back(shard);
    return at::cat(parts);
  }

  std::vector<NetworkUpdate> updates;
  std::atomic<std::int64_t> updates_told = 0;
  std::function<void(NetworkUpdate)> on_update;  // in the server's thread; else they are kept in updates
  std::vector<WorkerEvent> events;
  std::exception_ptr failure;

 private:
  using Links = std::vector<std::unique_ptr<ShardLink>>;

  static Links connect(const Layout& layout, const std::vector<ServerAddress>& others) {
    Links links;
    const int servers = static_cast<int>(others.size()) + 1;
    for (int i = 1; i < servers; ++i) {
      const ServerAddress& at = others[static_cast<std::size_t>(i - 1)];
      links.push_back(
          std::make_unique<ShardLink>(ShardLinkOptions{.host = at.host,
                                                       .port = at.port,
                                                       .number = i,
                                                       .where = "test",
                                                       .assignment = {layout, shards_of_server(layout, i, servers)},
                                                       .run = "toy",
                                                       .may_come_back = true,
                                                       .heartbeat_interval = kHeartbeatInterval,
                                                       .peer_timeout = 10'000'000'000,
                                                       .connect_timeout = 5'000'000'000}));
    }
    return links;
  }

  void load_others(const std::optional<ToySaved>& saved) {
    const auto shards = saved ? saved->server.weights.shards : to_shards(server_.layout(), toy_values(0, {}));
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const auto range =
          shards_of_server(server_.layout(), static_cast<int>(i) + 1, static_cast<int>(links_.size()) + 1);
      ShardsState state{.values = part_of(shards, range)};
      if (saved) {
        for (const auto& [name, of_shards] : saved->server.optimizer)
          state.optimizer.emplace_back(name, part_of(of_shards, range));
      }
      links_[i]->load(state, server_.progress().version);
    }
  }

  static std::vector<OtherShards*> as_others(const Links& links) {
    std::vector<OtherShards*> others;
    for (const auto& link : links) others.push_back(link.get());
    return others;
  }
  static std::vector<at::Tensor> toy_values(int shards, const std::optional<ToySaved>& saved) {
    if (saved) return from_shards(toy_layout(shards), saved->server.weights.shards);
    return {at::arange(6, at::kDouble), at::ones({5}, at::kDouble)};
  }
  void take(std::optional<NetworkUpdate> update) {
    if (!update) return;
    updates_told.fetch_add(1);
    if (on_update) return on_update(std::move(*update));
    updates.push_back(std::move(*update));
  }

  Links links_;
  Server server_;
  data::Ledger ledger_;
  std::optional<NetworkServer> network_;
  std::atomic<bool> must_stop_ = false, is_killed_ = false;
  std::thread thread_;
};

inline LinkOptions toy_link(int port, int worker) {
  return {.host = "127.0.0.1",
          .port = port,
          .worker = WorkerId{worker},
          .where = "test",
          .batch = kLease,
          .heartbeat_interval = kHeartbeatInterval,
          .connect_timeout = 5'000'000'000,
          .peer_timeout = 5'000'000'000,
          .rival_timeout = 500'000'000};
}

// Steps until the run is over, or so many. Returns how many it has pushed.
inline int work(LinkOptions options, int most = 1 << 30, const std::function<void()>& in_step = {}) {
  NetworkLink link(std::move(options));
  Tensors weights = room_for(link.layout());
  int steps = 0;
  while (steps < most) {
    const auto lease = link.next_lease();
    if (!lease) break;
    try {
      const std::int64_t version = link.pull(weights);
      if (in_step) in_step();
      send(link, toy_push(version, weights, lease->samples));
      ++steps;
    } catch (const StepIsVoid&) {
    }
  }
  link.leave();
  return steps;
}

// In a thread of its own: until the run is over, of which it hears.
inline int work_to_the_end(LinkOptions options) {
  try {
    return work(std::move(options));
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  return 0;
}

// The same run without a network: every update of the same leases, of as many workers as there are.
inline at::Tensor bulk_synchronous_by_hand(int workers, std::int64_t updates) {
  data::Ledger ledger({.seed = 3, .samples = kSamples});
  at::Tensor weights = at::cat({at::arange(6, at::kDouble), at::ones({5}, at::kDouble)});
  at::Tensor momentum = at::zeros_like(weights);
  for (std::int64_t update = 0; update < updates; ++update) {
    std::vector<std::int64_t> samples;
    for (int w = 0; w < workers; ++w) {
      const data::Lease lease = *ledger.lease(kLease);
      samples.insert(samples.end(), lease.samples.begin(), lease.samples.end());
      ledger.push_all(lease.id);
    }
    momentum = 0.5 * momentum + toy_gradient(weights, samples) / static_cast<double>(samples.size());
    weights -= kRate * momentum;
  }
  return weights;
}

inline at::Tensor in_order(const ToyServer& server) {
  return at::cat(from_shards(server.server().layout(), server.server().weights().tensors.shards));
}

// Every sample of each epoch that is over was pushed once.
inline void expect_whole_epochs(const ToyServer& server) {
  for (std::int64_t epoch = 0; epoch < server.ledger().epochs_over(); ++epoch) {
    const data::LedgerCounts counts = server.ledger().counts(epoch);
    EXPECT_EQ(counts.pushed, kSamples) << epoch;
    EXPECT_EQ(counts.waiting + counts.leased + counts.lost, 0) << epoch;
  }
}

}  // namespace sluice::ps::test
