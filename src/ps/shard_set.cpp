#include "ps/shard_set.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>

#include "device/cpu_threads.h"
#include "optim/clip_norm.h"

namespace sluice::ps {
namespace {

// Whether the sum is a single unscaled push, which was checked when it arrived.
bool is_one_push(const Mix& mix) { return mix.parts.size() == 1 && mix.parts.front().take == 1; }

}  // namespace

ShardSet::ShardSet(const optim::OptimizerOptions& optimizer, const std::vector<at::Tensor>& values, int threads) {
  std::size_t bytes = 0;
  for (const at::Tensor& shard : values) {
    shards_.emplace_back(optimizer, shard);
    bytes += shard.nbytes();
  }
  threads = std::min(threads, static_cast<int>(shards_.size()));
  if (threads > 1 && bytes >= kLeastBytesForThreads)
    threads_ = std::make_unique<ShardThreads>(threads, [] { device::use_cpu_threads(1); });
}

void ShardSet::for_each(const ShardThreads::Work& work) const {
  if (threads_) return threads_->run(shards_.size(), work);
  for (std::size_t s = 0; s < shards_.size(); ++s) work(s);
}

bool ShardSet::are_finite(const Tensors& pushed) const {
  std::atomic<bool> are_finite = optim::is_finite(pushed.statistics);
  for_each([&](std::size_t s) {
    if (!optim::is_finite(pushed.shards[s])) are_finite = false;
  });
  return are_finite;
}

Prepared ShardSet::prepare(const ShardStep& step, const std::vector<const Tensors*>& pushed) {
  if (step.count == 0) return {};
  std::vector<double> squares(shards_.size());
  std::atomic<bool> is_finite = true;
  for_each([&](std::size_t s) {
    std::vector<at::Tensor> of_shard;
    for (const Tensors* push : pushed) of_shard.push_back(push->shards[s]);
    ShardState& shard = shards_[s];
    if (step.mixes_weights) {
      if (!shard.mix_weights(step.mix, of_shard)) is_finite = false;
      return;
    }
    shard.add_up(step.mix, of_shard);
    if (step.wants_norm)
      squares[s] = shard.sum_of_squares();
    else if (!is_one_push(step.mix) && !shard.is_finite())
      is_finite = false;
  });
  // Adds in the order of the shards, whichever thread was first.
  const double all = std::accumulate(squares.begin(), squares.end(), 0.0);
  const bool can_be = std::isfinite(all);
  return {.squares = can_be ? all : 0, .is_finite = is_finite && can_be};
}

void ShardSet::commit(const ShardStep& step, const ShardUpdate& update) {
  if (step.count == 0) {  // the update changes nothing but still counts
    for (ShardState& shard : shards_) shard.set_updates(step.version);
    return;
  }
  for_each([&](std::size_t s) {
    if (step.mixes_weights)
      shards_[s].take_mixed();
    else
      shards_[s].update(update.lr, update.divisor);
  });
}

std::vector<at::Tensor> ShardSet::values() const {
  std::vector<at::Tensor> values;
  for (const ShardState& shard : shards_) values.push_back(shard.values());
  return values;
}

NamedStates ShardSet::optimizer_states() const {
  NamedStates states;
  const auto& named = shards_.front().optimizer().states();
  for (std::size_t i = 0; i < named.size(); ++i) {
    auto& [name, of_shards] = states.emplace_back(named[i].first, std::vector<at::Tensor>{});
    for (const ShardState& shard : shards_) of_shards.push_back(shard.optimizer().states()[i].second.clone());
  }
  return states;
}

void ShardSet::resume_from(const NamedStates& states, std::int64_t updates) {
  for (const auto& [name, of_shards] : states) {
    for (std::size_t s = 0; s < shards_.size(); ++s) shards_[s].load_optimizer(name, of_shards[s]);
  }
  for (ShardState& shard : shards_) shard.set_updates(updates);
}

}  // namespace sluice::ps
