#include "ps/server.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "device/cpu_threads.h"
#include "optim/clip_norm.h"

namespace sluice::ps {
namespace {

// Of the weights, below which waking a thread up takes longer than it saves (docs/performance.md).
constexpr std::int64_t kLeastBytesForThreads = 4 << 20;

void check_layout(const Layout& layout, const Tensors& tensors) {
  bool fits = tensors.shards.size() == layout.shards.size();
  for (std::size_t s = 0; fits && s < layout.shards.size(); ++s)
    fits = tensors.shards[s].numel() == layout.shards[s].elements && tensors.shards[s].scalar_type() == layout.dtype;
  check(fits && tensors.statistics.numel() == layout.statistics_elements(), "a push of another layout");
}

bool can_be(const PushRecord& record) {
  const bool has_steps = record.payload == Payload::kGradients || record.local_steps > 0;
  return record.examples >= 0 && record.targets >= 0 && has_steps && std::isfinite(record.factor) && record.factor > 0;
}

// Whether a sum of pushes is a push as it came: that one was finite when it was taken.
bool is_one_push(const Mix& mix) { return mix.parts.size() == 1 && mix.parts.front().take == 1; }

// What running statistics have changed by, where gradients or deltas are merged: their mean by examples, beside what
// there is.
Mix by_examples(const std::vector<PushRecord>& records) {
  Mix mix{.divisor = 0};
  for (std::size_t push = 0; push < records.size(); ++push) {
    if (records[push].examples == 0) continue;
    mix.parts.push_back({push, static_cast<double>(records[push].examples)});
    mix.divisor += static_cast<double>(records[push].examples);
  }
  mix.keep = mix.divisor;
  return mix;
}

}  // namespace

Server::Server(const Layout& layout, const std::vector<at::Tensor>& values, const at::Tensor& statistics,
               ServerOptions options, const ServerProgress& progress)
    : layout_(layout),
      options_(std::move(options)),
      coordinator_(options_.policy, progress.version),
      progress_(progress),
      statistics_(statistics.clone()) {
  for (const at::Tensor& shard : to_shards(layout_, values)) shards_.emplace_back(options_.optimizer, shard);
  check(statistics_.numel() == layout_.statistics_elements(), "statistics of another layout");
  const int threads = std::min(options_.threads, static_cast<int>(shards_.size()));
  if (threads > 1 && weights().tensors.bytes() >= kLeastBytesForThreads)
    threads_ = std::make_unique<ShardThreads>(threads, [] { device::use_cpu_threads(1); });
}

void Server::for_each_shard(const ShardThreads::Work& work) const {
  if (threads_) return threads_->run(shards_.size(), work);
  for (std::size_t s = 0; s < shards_.size(); ++s) work(s);
}

bool Server::is_finite(const Tensors& pushed) const {
  std::atomic<bool> is_finite = optim::is_finite(pushed.statistics);
  for_each_shard([&](std::size_t s) {
    if (!optim::is_finite(pushed.shards[s])) is_finite = false;
  });
  return is_finite;
}

PushAnswer Server::push(const PushRecord& record, Tensors pushed, Nanoseconds now) {
  check_layout(layout_, pushed);
  check(record.payload == options_.policy.payload, "a push of another kind than the policy has");
  if (!can_be(record) || !is_finite(pushed)) return PushAnswer::kRefused;
  const PushAnswer answer = coordinator_.push(record, now);
  if (answer == PushAnswer::kTaken) waiting_.emplace(record.worker, std::move(pushed));
  return answer;
}

std::vector<UpdateDone> Server::advance(Nanoseconds now) {
  std::vector<UpdateDone> done;
  while (auto update = coordinator_.take_update(now)) done.push_back(make(std::move(*update), options_.lr(progress_)));
  return done;
}

UpdateDone Server::redo(Update update, std::vector<Tensors> pushed, double lr) {
  check(waiting_.empty() && pushed.size() == update.pushes.size(), "an update is done again of other pushes");
  for (std::size_t i = 0; i < pushed.size(); ++i) {
    check_layout(layout_, pushed[i]);
    waiting_.emplace(update.pushes[i].worker, std::move(pushed[i]));
  }
  coordinator_.redo(update);
  return make(std::move(update), lr);
}

void Server::take_again(const PushRecord& record, Tensors pushed, Nanoseconds now) {
  check_layout(layout_, pushed);
  coordinator_.take_again(record, now);
  waiting_.emplace(record.worker, std::move(pushed));
}

UpdateDone Server::make(Update update, double lr) {
  merging_.clear();
  for (const PushRecord& record : update.pushes) {
    merging_.push_back(std::move(waiting_.at(record.worker)));
    waiting_.erase(record.worker);
  }
  UpdateDone done{.lr = lr};
  const bool takes_weights = options_.policy.payload == Payload::kWeights;
  for (const Mix& mix : mixes_of(options_.policy, update.pushes)) {
    if (takes_weights)
      take_in(mix, done);
    else
      step(mix, done);
  }
  if (!takes_weights && !done.is_dropped) merge_statistics(by_examples(update.pushes));
  merging_.clear();
  progress_.version = update.version;
  for (const PushRecord& record : update.pushes) progress_.examples += record.examples;
  done.update = std::move(update);
  return done;
}

void Server::step(const Mix& mix, UpdateDone& done) {
  const bool clips = options_.clip_norm > 0, is_known_finite = is_one_push(mix);
  std::vector<double> squares(shards_.size());
  std::atomic<bool> is_finite = true;
  for_each_shard([&](std::size_t s) {
    shards_[s].add_up(mix, pushed_of(s));
    if (clips)
      squares[s] = shards_[s].sum_of_squares();
    else if (!is_known_finite && !shards_[s].is_finite())
      is_finite = false;
  });
  done.is_dropped = !is_finite;
  double factor = 1;
  if (clips) {  // in the order of the shards, whoever was first
    done.gradient_norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0)) / mix.divisor;
    done.is_dropped = !std::isfinite(done.gradient_norm);
    factor = optim::clip_factor(done.gradient_norm, options_.clip_norm);
  }
  if (done.is_dropped) return;
  for_each_shard([&](std::size_t s) { shards_[s].update(done.lr, mix.divisor / factor); });
}

void Server::take_in(const Mix& mix, UpdateDone& done) {
  std::atomic<bool> is_finite = true;
  for_each_shard([&](std::size_t s) {
    if (!shards_[s].mix_weights(mix, pushed_of(s))) is_finite = false;
  });
  done.is_dropped = !is_finite;
  if (done.is_dropped) return;
  for (ShardState& shard : shards_) shard.take_mixed();
  merge_statistics(mix);
}

void Server::merge_statistics(const Mix& mix) {
  if (statistics_.numel() == 0 || mix.parts.empty()) return;
  const at::NoGradGuard no_grad;
  statistics_.mul_(mix.keep);
  for (const MixPart& part : mix.parts) statistics_.add_(merging_[part.push].statistics, part.take);
  statistics_.div_(mix.divisor);
}

std::vector<at::Tensor> Server::pushed_of(std::size_t shard) const {
  std::vector<at::Tensor> pushed;
  for (const Tensors& tensors : merging_) pushed.push_back(tensors.shards[shard]);
  return pushed;
}

Weights Server::weights() const {
  Weights weights{.version = progress_.version, .tensors = {.statistics = statistics_.clone()}};
  for (const ShardState& shard : shards_) weights.tensors.shards.push_back(shard.values());
  return weights;
}

void Server::go_on_from(const ServerState& state) {
  for (const auto& [name, of_shards] : state.optimizer) {
    for (std::size_t s = 0; s < shards_.size(); ++s) shards_[s].load_optimizer(name, of_shards[s]);
  }
  for (ShardState& shard : shards_) shard.set_updates(progress_.version);
  for (const auto& [worker, lives] : state.lives) coordinator_.remember(worker, lives);
}

ServerState Server::state() const {
  ServerState state{.progress = progress_, .weights = weights().tensors, .lives = coordinator_.lives()};
  const auto& named = shards_.front().optimizer().states();
  for (std::size_t i = 0; i < named.size(); ++i) {
    auto& [name, of_shards] = state.optimizer.emplace_back(named[i].first, std::vector<at::Tensor>{});
    for (const ShardState& shard : shards_) of_shards.push_back(shard.optimizer().states()[i].second.clone());
  }
  return state;
}

}  // namespace sluice::ps
