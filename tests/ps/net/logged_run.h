// logged_run: workers that come, go and push as a seed says, on a server that keeps a log; without a network.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "ps/net/push_log.h"

namespace sluice::ps::test {

inline constexpr int kWorkers = 4;
inline constexpr std::int64_t kKeptEvery = 7;  // updates between two copies of the state
inline const data::LedgerOptions kLoggedData{.seed = 5, .samples = 37};

struct Case {
  std::string policy;
  int shards = 1;
  at::ScalarType dtype = at::kDouble;
};

inline Layout layout_of(const Case& with) {
  return make_layout({{"a", {3, 2}, {2, 1}}, {"b", {5}, {1}}, {"c", {9}, {1}}}, {{"mean", 2}},
                     {.shards = with.shards, .split_bound = 4, .dtype = with.dtype});
}

inline SyncPolicy policy_of(const std::string& name) {
  SyncPolicy policy = preset_policy(name, kWorkers);
  if (name == "quorum") policy.grace = 2;
  return policy;
}

inline Server server_of(const Case& with, const ServerState* state = nullptr) {
  const Layout layout = layout_of(with);
  std::vector<at::Tensor> values;
  for (const Parameter& parameter : layout.parameters)
    values.push_back(at::linspace(-1, 1, parameter.elements(), with.dtype));
  at::Tensor statistics = at::zeros({2}, with.dtype);
  if (state != nullptr) {
    values = from_shards(layout, state->weights.shards);
    statistics = state->weights.statistics;
  }
  Server server(layout, values, statistics,
                {.policy = policy_of(with.policy),
                 .optimizer = {.kind = "adamw", .weight_decay = 0.01},
                 .lr = [](const ServerProgress& at) { return 0.1 / static_cast<double>(1 + at.version); },
                 .clip_norm = 0.5},
                state != nullptr ? state->progress : ServerProgress{});
  if (state != nullptr) server.resume_from(*state);
  return server;
}

inline Tensors random_tensors(const Layout& layout, std::mt19937& random) {
  const auto numbers = [&](std::int64_t size) {
    at::Tensor tensor = at::empty({size}, at::kDouble);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < size; ++i) tensor[i] = normal(random);
    return tensor.to(layout.dtype);
  };
  Tensors tensors;
  for (const Shard& shard : layout.shards) tensors.shards.push_back(numbers(shard.elements));
  tensors.statistics = numbers(layout.statistics_elements());
  return tensors;
}

class LoggedRun {
 public:
  struct Kept {
    ServerState state;
    data::LedgerState ledger;
  };

  LoggedRun(const Case& with, const std::filesystem::path& folder, unsigned seed)
      : server_(server_of(with)),
        log_({.folder = folder, .agreement = {{"key", "value"}}}, server_.layout()),
        random_(seed) {
    keep();
  }

  void run(int events) {
    for (int event = 0; event < events; ++event) {
      happen(workers_[static_cast<int>(random_() % kWorkers)]);
      for (const UpdateRecord& done : server_.advance(++now_)) write_update(done);
    }
  }

  void leave() {
    for (auto& [number, worker] : workers_) {
      if (worker.incarnation > 0) server_.leave(worker.id, ++now_);
    }
  }
  [[nodiscard]] std::vector<CommittedPush> waiting() const {
    std::vector<CommittedPush> pushes;
    for (const auto& [worker, entry] : waiting_) pushes.push_back(entry.second);
    return pushes;
  }
  Server& server() { return server_; }
  [[nodiscard]] const data::Ledger& ledger() const { return ledger_; }
  std::map<std::int64_t, Kept> kept;
  std::map<std::int64_t, std::string> digests;  // [version], of the weights

 private:
  struct Worker {
    WorkerId id{};
    int incarnation = 0;  // 0: not there
    int incarnations = 0;
    std::int64_t pushed = 0;
    std::optional<data::Lease> lease;
    std::int64_t version = 0;
  };

  void happen(Worker& worker) {
    if (worker.incarnation == 0) {
      worker.incarnation = server_.join(worker.id, ++now_);
      worker.pushed = 0;
    } else if (random_() % 12 == 0) {
      if (worker.lease) ledger_.give_back(std::exchange(worker.lease, std::nullopt)->id);
      server_.leave(worker.id, ++now_);
      worker.incarnation = 0;
    } else if (worker.lease) {
      push(worker);
    } else if (server_.may_begin(worker.id)) {
      worker.version = server_.begin(worker.id);
      worker.lease = ledger_.lease(5);
    }
  }

  void push(Worker& worker) {
    const std::int64_t examples = 1 + static_cast<std::int64_t>(random_() % worker.lease->samples.size());
    const Tensors tensors = random_tensors(server_.layout(), random_);
    const PushRecord record{.worker = worker.id,
                            .incarnation = worker.incarnation,
                            .sequence = ++worker.pushed,
                            .base_version = worker.version,
                            .examples = examples,
                            .targets = 3 * examples,
                            .local_steps = server_.policy().payload == Payload::kGradients ? 0 : 4,
                            .factor = 1.0 / 3,
                            .payload = server_.policy().payload};
    const std::vector<std::int64_t>& leased = worker.lease->samples;
    const CommittedPush committed{
        .push = {record, {.loss_sum = 0.1 * static_cast<double>(examples)}, {.compute_s = 0.25}, tensors},
        .epoch = worker.lease->epoch,
        .samples = {leased.begin(), leased.begin() + examples}};
    log_.write_push(committed);
    ASSERT_EQ(server_.push(record, tensors.clone(), ++now_), PushAnswer::kCommitted);
    waiting_[worker.id] = {std::exchange(worker.lease, std::nullopt)->id, committed};
  }

  void write_update(const UpdateRecord& done) {
    ASSERT_FALSE(done.is_dropped);
    log_.write_update(done);
    for (const PushRecord& record : done.update.pushes) {
      ledger_.push_first(waiting_.at(record.worker).first, record.examples);
      waiting_.erase(record.worker);
    }
    if (done.update.version % kKeptEvery == 0) keep();
    digests[done.update.version] = digest_of(server_.weights().tensors);
  }

  void keep() {
    kept.emplace(server_.progress().version, Kept{server_.state(), ledger_.state()});
    digests[server_.progress().version] = digest_of(server_.weights().tensors);
    log_.begin(server_.weights(), waiting());
  }

  Server server_;
  data::Ledger ledger_{kLoggedData};
  PushLog log_;
  std::mt19937 random_;
  std::map<int, Worker> workers_ = [] {
    std::map<int, Worker> all;
    for (int w = 0; w < kWorkers; ++w) all[w].id = WorkerId{w};
    return all;
  }();
  std::map<WorkerId, std::pair<data::LeaseId, CommittedPush>> waiting_;
  Nanoseconds now_ = 0;
};

}  // namespace sluice::ps::test
