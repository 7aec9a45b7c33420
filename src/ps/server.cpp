#include "ps/server.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "optim/clip_norm.h"

namespace sluice::ps {
namespace {

bool is_finite(const Tensors& tensors) {
  const auto is_good = [](const at::Tensor& flat) {
    return flat.numel() == 0 || std::isfinite(optim::sum_of_magnitudes(flat));
  };
  return std::ranges::all_of(tensors.shards, is_good) && is_good(tensors.statistics);
}

void check_layout(const Layout& layout, const Tensors& tensors) {
  bool fits = tensors.shards.size() == layout.shards.size();
  for (std::size_t s = 0; fits && s < layout.shards.size(); ++s)
    fits = tensors.shards[s].numel() == layout.shards[s].elements;
  check(fits && tensors.statistics.numel() == layout.statistics_elements(), "a push of another layout");
}

PushAnswer answer_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kTaken: return PushAnswer::kTaken;
    case Verdict::kDuplicate: return PushAnswer::kDuplicate;
    case Verdict::kUnknown: return PushAnswer::kUnknown;
    case Verdict::kOutOfTurn: break;
  }
  return PushAnswer::kOutOfTurn;
}

// Of running statistics, where gradients or deltas are merged: the mean by examples.
Mix by_examples(const std::vector<PushRecord>& records) {
  Mix mix{.divisor = 0};
  for (std::size_t push = 0; push < records.size(); ++push) {
    if (records[push].examples == 0) continue;
    mix.parts.push_back({push, static_cast<double>(records[push].examples)});
    mix.divisor += static_cast<double>(records[push].examples);
  }
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
}

PushAnswer Server::push(const PushRecord& record, Tensors pushed, Nanoseconds now) {
  check_layout(layout_, pushed);
  check(record.payload == options_.policy.payload, "a push of another kind than the policy has");
  if (!is_finite(pushed)) return PushAnswer::kNotFinite;
  const Verdict verdict = coordinator_.push(record, now);
  if (verdict == Verdict::kTaken) waiting_.emplace(record.worker, std::move(pushed));
  return answer_of(verdict);
}

std::vector<UpdateDone> Server::advance(Nanoseconds now) {
  std::vector<UpdateDone> done;
  while (auto update = coordinator_.take_update(now)) done.push_back(make(std::move(*update)));
  return done;
}

UpdateDone Server::make(Update update) {
  now_.clear();
  for (const PushRecord& record : update.pushes) {
    now_.push_back(std::move(waiting_.at(record.worker)));
    waiting_.erase(record.worker);
  }
  const std::vector<Mix> mixes = mixes_of(options_.policy, update.pushes);
  UpdateDone done{.lr = options_.lr(progress_)};
  if (options_.policy.payload != Payload::kWeights) {
    for (const Mix& mix : mixes) done.gradient_norm = gradient_step(mix, done.lr);
  } else {
    for (const Mix& mix : mixes) {
      for (std::size_t s = 0; s < shards_.size(); ++s) shards_[s].take_in(mix, pushed_of(s));
    }
  }
  merge_statistics(mixes, update.pushes);
  now_.clear();
  progress_.version = update.version;
  for (const PushRecord& record : update.pushes) progress_.examples += record.examples;
  done.update = std::move(update);
  return done;
}

double Server::gradient_step(const Mix& mix, double lr) {
  double squares = 0;
  for (std::size_t s = 0; s < shards_.size(); ++s) squares += shards_[s].add_up(mix, pushed_of(s));
  const double norm = std::sqrt(squares) / mix.divisor;
  const double factor = options_.clip_norm > 0 ? optim::clip_factor(norm, options_.clip_norm) : 1;
  for (ShardState& shard : shards_) shard.update(lr, mix.divisor / factor);
  return norm;
}

void Server::merge_statistics(const std::vector<Mix>& mixes, const std::vector<PushRecord>& records) {
  if (statistics_.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const bool takes_weights = options_.policy.payload == Payload::kWeights;
  for (const Mix& mix : takes_weights ? mixes : std::vector{by_examples(records)}) {
    if (mix.parts.empty()) continue;
    statistics_.mul_(mix.keep);
    for (const MixPart& part : mix.parts) statistics_.add_(now_[part.push].statistics, part.take);
    statistics_.div_(mix.divisor);
  }
}

std::vector<at::Tensor> Server::pushed_of(std::size_t shard) const {
  std::vector<at::Tensor> pushed;
  for (const Tensors& tensors : now_) pushed.push_back(tensors.shards[shard]);
  return pushed;
}

Weights Server::weights() const {
  Weights weights{.version = progress_.version, .tensors = {.statistics = statistics_}};
  for (const ShardState& shard : shards_) weights.tensors.shards.push_back(shard.values());
  return weights;
}

}  // namespace sluice::ps
