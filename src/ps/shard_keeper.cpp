#include "ps/shard_keeper.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"
#include "optim/clip_norm.h"

namespace sluice::ps {

ShardKeeper::ShardKeeper(const optim::OptimizerOptions& optimizer, TensorsShape shape, const ShardsState& state,
                         std::int64_t version)
    : shape_(std::move(shape)), shards_(optimizer, state.values), version_(version) {
  shards_.go_on_from(state.optimizer, version);
}

bool ShardKeeper::hold(const PushKey& push, Tensors part) {
  check(shape_.fits(part), "a part of a push of another layout");
  Part& kept = parts_[push.worker];
  if (push < kept.push) return false;
  if (push == kept.push) return true;
  kept = {push, std::move(part)};
  kept.is_finite = std::ranges::all_of(kept.tensors.shards, optim::is_finite);
  return true;
}

std::optional<bool> ShardKeeper::holds(const PushKey& push) const {
  const auto found = parts_.find(push.worker);
  if (found == parts_.end() || found->second.push != push || found->second.tensors.shards.empty()) return std::nullopt;
  return found->second.is_finite;
}

bool ShardKeeper::has_seen(const PushKey& push) const {
  const auto found = parts_.find(push.worker);
  return found != parts_.end() && push <= found->second.push;
}

std::optional<Prepared> ShardKeeper::prepare(const ShardStep& step) {
  if (!is_next(step)) return std::nullopt;
  std::vector<const Tensors*> pushed;
  for (const PushKey& push : step.pushes) {
    if (!holds(push)) return std::nullopt;
    pushed.push_back(&parts_.at(push.worker).tensors);
  }
  const auto is_of_a_push = [&](const MixPart& part) { return part.push < pushed.size(); };
  if (!std::ranges::all_of(step.mix.parts, is_of_a_push)) return std::nullopt;
  prepared_ = {step.version, step.index};
  return shards_.prepare(step, pushed);
}

bool ShardKeeper::has_taken(const ShardStep& step) const {
  return step.version <= version_ || (step.version == version_ + 1 && step.index < steps_done_);
}

bool ShardKeeper::take(const ShardStep& step, const ShardUpdate& update) {
  if (has_taken(step)) return true;
  const bool is_prepared = prepared_ == Position{step.version, step.index} || prepare(step).has_value();
  if (!is_prepared) return false;
  shards_.take(step, update);
  prepared_.reset();
  ++steps_done_;
  if (!step.is_last()) return true;
  version_ = step.version;
  steps_done_ = 0;
  // Its key stays: what comes of that worker from now on is newer.
  for (const PushKey& push : step.pushes) parts_.at(push.worker).tensors = {};
  return true;
}

Tensors ShardKeeper::weights() const { return {shards_.values(), at::empty({0}, shape_.dtype)}; }

std::vector<std::pair<PushKey, Tensors>> ShardKeeper::parts() const {
  std::vector<std::pair<PushKey, Tensors>> parts;
  for (const auto& [worker, part] : parts_) {
    if (!part.tensors.shards.empty()) parts.emplace_back(part.push, part.tensors);
  }
  return parts;
}

ShardsState ShardKeeper::state() const {
  ShardsState state{.optimizer = shards_.optimizer_states()};
  for (const at::Tensor& values : shards_.values()) state.values.push_back(values.clone());
  return state;
}

}  // namespace sluice::ps
