#include "ps/server.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "optim/clip_norm.h"

namespace sluice::ps {
namespace {

constexpr const char* kThisLayout = "a push of the server's layout";

bool can_be(const PushRecord& record) {
  const bool has_steps = record.payload == Payload::kGradients || record.local_steps > 0;
  return record.examples >= 0 && record.targets >= 0 && has_steps && std::isfinite(record.factor) && record.factor > 0;
}

// Mix for changes of running statistics, with gradients or deltas: their mean by examples is added.
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
      own_(shards_of_server(layout, 0, static_cast<int>(options.others.size()) + 1)),
      shape_(shape_of(layout, own_)),
      options_(std::move(options)),
      coordinator_(options_.policy, progress.version),
      progress_(progress),
      shards_(options_.optimizer, part_of(to_shards(layout_, values), own_), options_.threads),
      statistics_(statistics.clone()) {
  check(statistics_.numel() == layout_.statistics_elements(), "statistics of the server's layout");
}

PushAnswer Server::push(const PushRecord& record, Tensors pushed, Nanoseconds now) {
  check(shape_.fits(pushed), kThisLayout);
  check(record.payload == options_.policy.payload, "a push of the policy's payload");
  if (!can_be(record) || !shards_.are_finite(pushed)) return PushAnswer::kRefused;
  const PushAnswer answer = coordinator_.push(record, now);
  if (answer == PushAnswer::kCommitted) waiting_.emplace(record.worker, std::move(pushed));
  return answer;
}

std::vector<UpdateRecord> Server::advance(Nanoseconds now, const OnDecision& on_decision) {
  std::vector<UpdateRecord> done;
  while (auto update = coordinator_.take_update(now))
    done.push_back(make(std::move(*update), options_.lr(progress_), Others::kTakePart, 0, on_decision));
  return done;
}

UpdateRecord Server::redo(Update update, std::vector<Tensors> pushed, double lr, double other_squares) {
  check(waiting_.empty() && pushed.size() == update.pushes.size(),
        "an update is repeated with its own pushes, while no push waits");
  for (std::size_t i = 0; i < pushed.size(); ++i) {
    check(shape_.fits(pushed[i]), kThisLayout);
    waiting_.emplace(update.pushes[i].worker, std::move(pushed[i]));
  }
  coordinator_.redo(update);
  return make(std::move(update), lr, Others::kRemember, other_squares, {});
}

void Server::restore_push(const PushRecord& record, Tensors pushed, Nanoseconds now) {
  check(shape_.fits(pushed), kThisLayout);
  coordinator_.restore_push(record, now);
  waiting_.emplace(record.worker, std::move(pushed));
}

UpdateRecord Server::make(Update update, double lr, Others others, double other_squares,
                          const OnDecision& on_decision) {
  merging_.clear();
  std::vector<PushKey> keys;
  for (const PushRecord& record : update.pushes) {
    merging_.push_back(std::move(waiting_.at(record.worker)));
    waiting_.erase(record.worker);
    keys.push_back(record.key());
  }
  std::vector<Mix> mixes = mixes_of(options_.policy, update.pushes);
  const auto count = static_cast<int>(mixes.size());
  if (mixes.empty()) mixes.emplace_back();  // a step that changes nothing
  UpdateRecord done{.update = std::move(update), .lr = lr, .other_squares = other_squares};
  const bool takes_weights = options_.policy.payload == Payload::kWeights;
  for (std::size_t i = 0; i < mixes.size() && !done.is_dropped; ++i) {
    step({.version = done.update.version,
          .index = static_cast<int>(i),
          .count = count,
          .mix = mixes[i],
          .pushes = keys,
          .mixes_weights = takes_weights,
          .wants_norm = !takes_weights && options_.clip_norm > 0},
         others, done, on_decision);
    if (takes_weights && count > 0 && !done.is_dropped) merge_statistics(mixes[i]);
  }
  if (!takes_weights && !done.is_dropped) merge_statistics(by_examples(done.update.pushes));
  merging_.clear();
  progress_.version = done.update.version;
  for (const PushRecord& record : done.update.pushes) progress_.examples += record.examples;
  return done;
}

void Server::step(const ShardStep& step, Others others, UpdateRecord& done, const OnDecision& on_decision) {
  const Prepared prepared = prepare(step, others, done);
  double factor = 1;
  if (step.wants_norm) {
    done.gradient_norm = std::sqrt(prepared.squares) / step.mix.divisor;
    factor = optim::clip_factor(done.gradient_norm, options_.clip_norm);
  }
  done.is_dropped = !prepared.is_finite || !std::isfinite(done.gradient_norm);
  if (done.is_dropped) return;
  if (step.index == 0 && on_decision) on_decision(done);
  commit(step, others, {.lr = done.lr, .divisor = step.mix.divisor / factor});
}

Prepared Server::prepare(const ShardStep& step, Others others, UpdateRecord& done) {
  const bool are_asked = others == Others::kTakePart;
  if (are_asked)
    for (OtherShards* other : options_.others) other->prepare(step);
  std::vector<const Tensors*> pushed;
  for (const Tensors& push : merging_) pushed.push_back(&push);
  Prepared all = shards_.prepare(step, pushed);
  if (are_asked) {
    for (OtherShards* other : options_.others) {
      const Prepared theirs = other->prepared();
      done.other_squares += theirs.squares;
      all.is_finite &= theirs.is_finite;
    }
  }
  all.squares += done.other_squares;
  return all;
}

void Server::commit(const ShardStep& step, Others others, const ShardUpdate& update) {
  if (others == Others::kRemember) {
    for (OtherShards* other : options_.others) other->remember(step, update);
    return shards_.commit(step, update);
  }
  for (OtherShards* other : options_.others) other->commit(step, update);
  shards_.commit(step, update);
  for (OtherShards* other : options_.others) other->committed();
}

void Server::merge_statistics(const Mix& mix) {
  if (statistics_.numel() == 0 || mix.parts.empty()) return;
  const at::NoGradGuard no_grad;
  // The pushes are summed first and without fused multiply-add, so that two pushes give the same bits in either order.
  at::Tensor pushed = at::zeros_like(statistics_);
  for (const MixPart& part : mix.parts) pushed.add_(merging_[part.push].statistics * part.take);
  statistics_.mul_(mix.keep).add_(pushed).div_(mix.divisor);
}

Weights Server::weights() const {
  return {.version = progress_.version, .tensors = {.shards = shards_.values(), .statistics = statistics_.clone()}};
}

void Server::resume_from(const ServerState& state) {
  NamedStates own;
  for (const auto& [name, of_shards] : state.optimizer) own.emplace_back(name, part_of(of_shards, own_));
  shards_.resume_from(own, progress_.version);
  for (const auto& [worker, incarnations] : state.incarnations)
    coordinator_.remember_incarnations(worker, incarnations);
}

ServerState Server::state() const {
  for (OtherShards* other : options_.others) other->ask_for_state();
  ServerState state{.progress = progress_,
                    .weights = weights().tensors,
                    .optimizer = shards_.optimizer_states(),
                    .incarnations = coordinator_.incarnations()};
  for (OtherShards* other : options_.others) {
    const ShardsState theirs = other->state();
    std::ranges::copy(theirs.values, std::back_inserter(state.weights.shards));
    check(theirs.optimizer.size() == state.optimizer.size(), "the same optimizer on all servers");
    for (std::size_t i = 0; i < state.optimizer.size(); ++i)
      std::ranges::copy(theirs.optimizer[i].second, std::back_inserter(state.optimizer[i].second));
  }
  return state;
}

}  // namespace sluice::ps
