// storm: a toy run in which workers and its server are killed again and again, with all that was pushed and counted,
// and the same updates again by plain formulas.
#pragma once

#include <array>
#include <mutex>
#include <random>
#include <set>

#include "core/error.h"
#include "ps/net/toy_shards.h"

namespace sluice::ps::test {

// What a worker has pushed, by the number that it wrote into the push (as its loss).
struct StormPush {
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples;
};

struct StormOptions {
  std::string policy;
  int workers = 3;
  int events = 10;
  std::uint64_t seed = 1;
  bool kills_server = true;
  int servers = 1;  // beside the first one, servers of shards with logs, which are killed as often as workers
};

class Storm {
 public:
  explicit Storm(StormOptions options) : options_(std::move(options)), random_(options_.seed) {}

  void run() {
    for (int i = 1; i < options_.servers; ++i)
      others_.push_back(std::make_unique<ToyShardServer>(dir_.path() / std::to_string(i)));
    start_server(kEndless, std::nullopt);
    std::vector<std::thread> threads;
    for (int w = 0; w < options_.workers; ++w) threads.emplace_back([this, w] { live(w); });
    for (int event = 0; event < options_.events; ++event) {
      wait_for_updates(1 + static_cast<std::int64_t>(random_() % 12));
      happen();
    }
    replace_server(/*more=*/60);
    server_->join();
    is_over_ = true;
    for (std::thread& thread : threads) thread.join();
    for (auto& other : others_) other->join();
  }

  // In the order of the parameters.
  [[nodiscard]] at::Tensor weights() const {
    std::vector<const ToyShardServer*> others;
    for (const auto& other : others_) others.push_back(other.get());
    return in_order(*server_, others);
  }
  [[nodiscard]] const ToyServer& server() const { return *server_; }
  // By version: the updates that the last server's weights are made of.
  [[nodiscard]] const std::map<std::int64_t, std::vector<PushDone>>& updates() const { return updates_; }
  [[nodiscard]] const StormPush& pushed(const PushDone& push) const {
    return pushed_.at(static_cast<std::int64_t>(push.scores.loss_sum));
  }
  [[nodiscard]] int deaths() const { return deaths_; }
  [[nodiscard]] int servers() const { return servers_; }
  [[nodiscard]] int deaths_of_others() const { return deaths_of_others_; }

 private:
  static constexpr std::int64_t kEndless = 1'000'000'000;
  static constexpr std::int64_t kSaveEvery = 5;

  void start_server(std::int64_t last, const std::optional<ToySaved>& saved) {
    const auto change = [&](NetworkOptions& options) {
      options.port = port_;
      options.last_version = last;
      options.peer_timeout = 300'000'000;
      options.wants_state = [](const ServerProgress&, const ServerProgress& after) {
        return after.version % kSaveEvery == 0;
      };
    };
    std::vector<ServerAddress> addresses;
    for (const auto& other : others_) addresses.push_back(other->address());
    server_ = std::make_unique<ToyServer>(preset_policy(options_.policy, options_.workers), last,
                                          std::max(2, options_.servers), change, saved, nullptr, addresses);
    server_->on_update = [this](NetworkUpdate update) { keep(std::move(update)); };
    port_ = server_->port();
    ++servers_;
    server_->start();
  }

  void keep(NetworkUpdate update) {
    if (update.state) saved_ = ToySaved{std::move(*update.state), std::move(*update.ledger)};
    updates_[update.done.update.version] = std::move(update.pushes);
  }

  // Dead without a word; what it has not saved is lost.
  void replace_server(std::int64_t more) {
    server_->kill();
    EXPECT_FALSE(server_->failure);
    server_.reset();
    const std::int64_t version = saved_ ? saved_->server.progress.version : 0;
    updates_.erase(updates_.upper_bound(version), updates_.end());
    start_server(more == kEndless ? kEndless : version + more, saved_);
  }

  void happen() {
    const std::uint64_t draw = random_() % 10;
    const bool both = draw == 0;
    if (options_.kills_server && (both || draw == 1)) replace_server(kEndless);
    if (draw == 1) return;
    if (!others_.empty() && draw < 6) {
      ToyShardServer& other = *others_[random_() % others_.size()];
      other.kill();
      other.start();
      ++deaths_of_others_;
      return;
    }
    const std::size_t victim = random_() % static_cast<std::uint64_t>(options_.workers);
    dies_at_[victim] = static_cast<int>(1 + random_() % 4);
  }

  // Of this server, or until nobody makes any: also then something happens.
  void wait_for_updates(std::int64_t count) {
    const std::int64_t before = server_->updates_told;
    const Nanoseconds until = now_ns() + 3'000'000'000;
    while (server_->updates_told < before + count && now_ns() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  // A worker, and after each of its deaths another process for its number.
  void live(int worker) {
    while (!is_over_) {
      try {
        LinkOptions options = toy_link(port_, worker);
        options.is_stopped = [this] { return is_over_.load(); };
        for (const auto& other : others_) options.others.push_back(other->address());
        NetworkLink link(options);
        if (work_until_killed(link, worker)) return;
        ++deaths_;
      } catch (const Error&) {  // its number is taken still, or the server is gone for too long, or all is over
      }
    }
  }

  // Whether the run is over.
  bool work_until_killed(NetworkLink& link, int worker) {
    enum { kWithLease = 1, kWithWeights, kWithPush, kInStep };
    std::atomic<int>& dies_at = dies_at_[static_cast<std::size_t>(worker)];
    const auto is_killed = [&](int at) { return dies_at == at && dies_at.exchange(0) == at; };
    Tensors weights = room_for(link.layout());
    while (const auto lease = link.next_lease()) {
      if (is_killed(kWithLease)) return false;
      try {
        if (is_killed(kWithWeights)) return static_cast<void>(link.wait_for_weights()), false;
        Push push = toy_push(link.pull(weights), weights, lease->samples);
        if (is_killed(kInStep)) return false;
        push.scores.loss_sum = note(*lease);
        send(link, std::move(push));
        if (is_killed(kWithPush)) return false;
      } catch (const StepIsVoid&) {
      }
    }
    link.leave();
    return true;
  }

  double note(const data::Lease& lease) {
    const std::scoped_lock lock(mutex_);
    pushed_.push_back({lease.epoch, lease.samples});
    return static_cast<double>(pushed_.size() - 1);
  }

  StormOptions options_;
  std::mt19937_64 random_;
  const sluice::test::TempDir dir_;
  std::vector<std::unique_ptr<ToyShardServer>> others_;
  int deaths_of_others_ = 0;
  std::unique_ptr<ToyServer> server_;
  std::atomic<int> port_ = 0;
  std::optional<ToySaved> saved_;                          // of the server's thread, while it runs
  std::map<std::int64_t, std::vector<PushDone>> updates_;  // likewise
  std::array<std::atomic<int>, 8> dies_at_{};              // [worker]; 0: it lives on
  std::atomic<bool> is_over_ = false;
  std::atomic<int> deaths_ = 0;
  int servers_ = 0;
  std::mutex mutex_;
  std::deque<StormPush> pushed_;
};

// The weights after these updates, in the order of the parameters: momentum steps on the mean over an update's samples,
// each gradient at the weights that its worker had.
inline std::vector<double> recomputed(const Storm& storm) {
  std::vector<std::vector<double>> weights{{0, 1, 2, 3, 4, 5, 1, 1, 1, 1, 1}};  // [version]
  std::vector<double> momentum(weights[0].size(), 0.0);
  for (const auto& [version, pushes] : storm.updates()) {
    std::vector<double> now = weights.back();
    for (std::size_t i = 0; i < now.size(); ++i) {
      double sum = 0, targets = 0;
      for (const PushDone& push : pushes) {
        double gradient = 0;
        const double w = weights.at(static_cast<std::size_t>(push.record.base_version))[i];
        for (const std::int64_t sample : storm.pushed(push).samples) gradient += w - 0.1 * static_cast<double>(sample);
        sum += gradient;
        targets += static_cast<double>(push.record.targets);
      }
      momentum[i] = 0.5 * momentum[i] + sum / targets;
      now[i] -= kRate * momentum[i];
    }
    weights.push_back(now);
  }
  return weights.back();
}

inline void expect_each_sample_once(const Storm& storm) {
  std::map<std::pair<std::int64_t, std::int64_t>, int> times;  // by epoch and sample
  for (const auto& [version, pushes] : storm.updates()) {
    for (const PushDone& push : pushes) {
      const StormPush& pushed = storm.pushed(push);
      ASSERT_EQ(push.record.examples, std::ssize(pushed.samples));
      for (const std::int64_t sample : pushed.samples) ++times[{pushed.epoch, sample}];
    }
  }
  for (const auto& [which, count] : times) ASSERT_EQ(count, 1) << "epoch " << which.first << ", " << which.second;
  for (std::int64_t epoch = 0; epoch < storm.server().ledger().epochs_over(); ++epoch) {
    for (std::int64_t sample = 0; sample < kSamples; ++sample) ASSERT_TRUE(times.contains({epoch, sample}));
  }
  // Begun, not over: the samples of a dead worker stay out until its silence is noticed, while others go on.
  EXPECT_GT(times.rbegin()->first.first, 2);
  EXPECT_GT(storm.server().ledger().epochs_over(), 0);
  expect_whole_epochs(storm.server());
}

// One run, and all that must hold after it.
inline void weather(const StormOptions& options) {
  SCOPED_TRACE(options.policy);
  Storm storm(options);
  storm.run();
  EXPECT_FALSE(storm.server().failure);
  const std::int64_t version = storm.server().server().progress().version;
  ASSERT_EQ(static_cast<std::int64_t>(storm.updates().size()), version) << "none is missing";
  EXPECT_EQ(storm.updates().rbegin()->first, version);
  const at::Tensor weights = storm.weights();
  EXPECT_TRUE(at::equal(weights, at::tensor(recomputed(storm), at::kDouble))) << "bit for bit";
  expect_each_sample_once(storm);
  std::set<std::tuple<WorkerId, int, std::int64_t, double>> all;
  for (const auto& [number, pushes] : storm.updates()) {
    for (const PushDone& push : pushes)
      EXPECT_TRUE(
          all.emplace(push.record.worker, push.record.incarnation, push.record.sequence, push.scores.loss_sum).second);
  }
  EXPECT_GE(storm.deaths(), options.events / (options.servers == 1 ? 4 : 8));
  EXPECT_GE(storm.deaths_of_others(), options.servers == 1 ? 0 : options.events / 4);
  std::printf("[ storm ] %s: %d events, %d workers, %d servers and %d servers of shards died, %lld updates count\n",
              options.policy.c_str(), options.events, storm.deaths(), storm.servers() - 1, storm.deaths_of_others(),
              static_cast<long long>(version));
}

}  // namespace sluice::ps::test
