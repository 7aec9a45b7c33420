#include "ps/worker_sync.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/scores.h"

namespace sluice::ps {
namespace {

using Pieces = std::vector<std::pair<std::size_t, Piece>>;

std::map<std::string, Pieces> pieces_by_name(const Layout& layout) {
  std::map<std::string, Pieces> pieces;
  for (std::size_t s = 0; s < layout.shards.size(); ++s) {
    for (const Piece& piece : layout.shards[s].pieces)
      pieces[layout.parameters[piece.parameter].name].emplace_back(s, piece);
  }
  return pieces;
}

template <typename Visit>
void for_each_owner(const std::vector<comm::SyncedStage>& stages, const Visit& visit) {
  for (const comm::SyncedStage& stage : stages) {
    for (const comm::Extent& extent : stage.extents) {
      if (extent.tied_to.empty()) visit(stage, extent);
    }
  }
}

std::vector<Parameter> parameters_in(const std::vector<comm::SyncedStage>& stages) {
  std::vector<Parameter> parameters;
  for_each_owner(stages, [&](const comm::SyncedStage&, const comm::Extent& extent) {
    parameters.push_back({extent.name, extent.sizes, extent.strides});
  });
  return parameters;
}

std::vector<NamedSize> statistics_in(const std::vector<comm::SyncedStage>& stages) {
  std::vector<NamedSize> statistics;
  for (const comm::SyncedStage& stage : stages) {
    for (const comm::RunningStatistic& statistic : stage.statistics)
      statistics.emplace_back(statistic.name, statistic.values.front().numel());
  }
  return statistics;
}

std::string in_words(const Parameter& parameter) {
  return concat(parameter.name, " ", c10::IntArrayRef(parameter.sizes));
}

void check_same_model(const std::vector<comm::SyncedStage>& stages, const Layout& layout) {
  const auto refuse = [](const auto&... what) {
    throw ConfigError("the model of this worker is not the server's: ", what...,
                      "; start both with the same [model] and [freeze], on devices of the same kind");
  };
  const std::vector<Parameter> own = parameters_in(stages);
  const auto [mine, servers] = std::ranges::mismatch(own, layout.parameters);
  const bool ends_here = mine == own.end(), ends_there = servers == layout.parameters.end();
  if (!ends_here && !ends_there) {
    const bool is_order = mine->name == servers->name && mine->sizes == servers->sizes;
    refuse("the worker has ", in_words(*mine), ", but the server has ", in_words(*servers),
           is_order ? " with its elements in another order" : "");
  }
  if (!ends_here) refuse("the server does not have ", in_words(*mine));
  if (!ends_there) refuse("the worker does not train ", in_words(*servers));
  if (const auto dtype = stages.front().values.front().scalar_type(); dtype != layout.dtype)
    refuse("the worker's type is ", c10::toString(dtype), ", the server's is ", c10::toString(layout.dtype));
  if (statistics_in(stages) != layout.statistics) refuse("their running statistics differ");
}

}  // namespace

Layout layout_of(const std::vector<comm::SyncedStage>& stages, LayoutOptions options) {
  options.dtype = stages.front().values.front().scalar_type();
  return make_layout(parameters_in(stages), statistics_in(stages), options);
}

std::vector<at::Tensor> values_of(const std::vector<comm::SyncedStage>& stages) {
  std::vector<at::Tensor> values;
  for_each_owner(stages, [&](const comm::SyncedStage& stage, const comm::Extent& extent) {
    values.push_back(stage.values.front()
                         .narrow(0, extent.begin, extent.end - extent.begin)
                         .to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
  });
  return values;
}

at::Tensor statistics_of(const std::vector<comm::SyncedStage>& stages) {
  std::vector<at::Tensor> parts{at::empty({0}, stages.front().values.front().options().device(at::kCPU))};
  for (const comm::SyncedStage& stage : stages) {
    for (const comm::RunningStatistic& statistic : stage.statistics)
      parts.push_back(statistic.values.front().flatten().to(at::kCPU));
  }
  return at::cat(parts);
}

WorkerSync::WorkerSync(std::vector<comm::SyncedStage> stages, std::size_t bucket_bytes,
                       std::shared_ptr<ServerLink> link, WorkerSyncOptions options)
    : sum_(std::move(stages), {.bucket_bytes = bucket_bytes},
           [this](int stage, int bucket, const device::Event& summed) {
             if (goes_ahead_) thread_->add(stage, bucket, summed);
           }),
      link_(std::move(link)),
      options_(std::move(options)) {
  find_moves();
  plan_ahead();
  const at::TensorOptions on_cpu = sum_.stages().front().values.front().options().device(at::kCPU);
  for (const Shard& shard : link_->layout().shards) pulled_.shards.push_back(at::empty({shard.elements}, on_cpu));
  pulled_.statistics = at::empty({link_->layout().statistics_elements()}, on_cpu);
}

void WorkerSync::find_moves() {
  check_same_model(sum_.stages(), link_->layout());
  const std::map<std::string, Pieces> known = pieces_by_name(link_->layout());
  for (std::size_t s = 0; s < sum_.stages().size(); ++s) {
    for (const comm::Extent& extent : sum_.stages()[s].extents) {
      const bool is_copy = !extent.tied_to.empty();
      const auto found = known.find(is_copy ? extent.tied_to : extent.name);
      check(found != known.end(), "a tied parameter's owner is trained");
      for (const auto& [shard, piece] : found->second)
        moves_.push_back({s, shard, extent.begin + piece.begin, piece.offset, piece.elements(), is_copy});
    }
  }
  std::ranges::stable_partition(moves_, [](const Move& move) { return !move.is_copy; });
}

// Groups moves into messages: one per bucket and shard.
void WorkerSync::plan_ahead() {
  if (options_.payload != Payload::kGradients || !link_->takes_spans()) return;
  const auto add = [](std::vector<Ahead>& messages, const Move& move) {
    const auto found = std::ranges::find(messages, move.shard, &Ahead::shard);
    Ahead& message = found != messages.end() ? *found : messages.emplace_back(Ahead{.shard = move.shard});
    message.moves.push_back(move);
  };
  std::ranges::copy_if(moves_, std::back_inserter(copies_), &Move::is_copy);
  for (const Move& move : moves_) {
    if (move.is_copy) continue;
    const bool is_tied = std::ranges::any_of(
        copies_, [&](const Move& copy) { return copy.shard == move.shard && copy.offset == move.offset; });
    const auto stage = static_cast<int>(move.stage);
    add(is_tied ? tied_ : ahead_[{stage, sum_.bucket_with(stage, move.begin)}], move);
  }
  thread_.emplace([this](int stage, int bucket) { send_bucket(stage, bucket); });
}

void WorkerSync::begin_round(const Round& round) {
  check(round.steps == 1 || (round.steps > 1 && options_.payload != Payload::kGradients),
        "rounds of one step if gradients are pushed");
  round_ = round;
  steps_done_ = 0;
}

bool WorkerSync::begin_step(const comm::StepStart& start) {
  is_trial_ = start.is_trial;
  if (thread_) thread_->forget();
  goes_ahead_ = thread_ && !is_trial_;
  gradient_scale_ = start.gradient_scale;
  sum_.begin_step();
  if (is_trial_ || steps_done_ > 0) return false;
  version_ = link_->pull(pulled_);
  done_ = {};
  write_weights();
  return true;
}

bool WorkerSync::admits(ReplicaId replica, MicroBatchId micro_batch) {
  return is_trial_ || !options_.admission || options_.admission(replica, micro_batch);
}

void WorkerSync::write_weights() {
  const at::NoGradGuard no_grad;
  for (const Move& move : moves_) {
    if (move.is_copy) continue;
    sum_.stages()[move.stage]
        .values.front()
        .narrow(0, move.begin, move.elements)
        .copy_(pulled_.shards[move.shard].narrow(0, move.offset, move.elements));
  }
  std::int64_t begin = 0;
  for (const comm::SyncedStage& stage : sum_.stages()) {
    for (const comm::RunningStatistic& statistic : stage.statistics) {
      for (const at::Tensor& of_replica : statistic.values)
        of_replica.copy_(pulled_.statistics.narrow(0, begin, of_replica.numel()).view_as(of_replica));
      begin += statistic.values.front().numel();
    }
  }
}

comm::StepOutcome WorkerSync::finish_step(const comm::Contribution& local) {
  sum_.finish_step();
  const bool updates_here = options_.payload != Payload::kGradients;
  const comm::StepOutcome outcome{.update = updates_here ? comm::Update::kLocal : comm::Update::kElsewhere,
                                  .total = local};
  // A loss that is not finite ends this worker's step with an error. Its result must not reach the server.
  if (is_trial_ || !std::isfinite(local.loss_sum)) {
    if (thread_) thread_->forget();
    return outcome;
  }
  done_.samples += local.samples;
  done_.targets += local.targets;
  done_.loss_sum += local.loss_sum;
  add_to(done_.scores, local.scores);
  if (!updates_here) push(gradients());
  return outcome;
}

bool WorkerSync::on_updated() {
  if (++steps_done_ == round_.steps) {
    steps_done_ = 0;
    push(own_tensors());
  }
  return false;
}

void WorkerSync::push(Tensors tensors) {
  const bool updates_here = options_.payload != Payload::kGradients;
  link_->push({.record = {.base_version = version_,
                          .examples = done_.samples,
                          .targets = done_.targets,
                          .local_steps = updates_here ? round_.steps : 0,
                          .factor = round_.factor,
                          .payload = options_.payload},
               .scores = {.loss_sum = done_.loss_sum, .sums = done_.scores},
               .tensors = std::move(tensors)});
}

Tensors WorkerSync::own_tensors() const {
  const at::NoGradGuard no_grad;
  Tensors pushed{.statistics = statistics_of(sum_.stages())};
  for (const at::Tensor& shard : pulled_.shards) pushed.shards.push_back(at::empty_like(shard));
  for (const Move& move : moves_) {
    if (move.is_copy) continue;
    pushed.shards[move.shard]
        .narrow(0, move.offset, move.elements)
        .copy_(sum_.stages()[move.stage].values.front().narrow(0, move.begin, move.elements));
  }
  if (options_.payload != Payload::kDelta) return pushed;
  for (std::size_t s = 0; s < pushed.shards.size(); ++s) pushed.shards[s].neg_().add_(pulled_.shards[s]);
  pushed.statistics.sub_(pulled_.statistics);
  return pushed;
}

// The gradients, without shards that were sent ahead.
Tensors WorkerSync::gradients() {
  const at::NoGradGuard no_grad;
  Tensors pushed{.statistics = statistics_of(sum_.stages()) - pulled_.statistics};
  if (goes_ahead_) {
    thread_->wait();
    for (const Ahead& ahead : tied_) send_ahead(ahead, copies_);
    return pushed;
  }
  for (const at::Tensor& shard : pulled_.shards) pushed.shards.push_back(at::empty_like(shard));
  for (const Move& move : moves_) {
    const at::Tensor part = pushed.shards[move.shard].narrow(0, move.offset, move.elements);
    if (move.is_copy)
      part.add_(gradient_of(move).to(part.device()));
    else
      part.copy_(gradient_of(move));
  }
  for (const at::Tensor& shard : pushed.shards) shard.div_(gradient_scale_);
  return pushed;
}

at::Tensor WorkerSync::gradient_of(const Move& move) const {
  return sum_.stages()[move.stage].gradients.front().narrow(0, move.begin, move.elements);
}

void WorkerSync::send_bucket(int stage, int bucket) {
  const auto found = ahead_.find({stage, bucket});
  if (found == ahead_.end()) return;  // a bucket of only copies of tied parameters
  for (const Ahead& ahead : found->second) send_ahead(ahead, {});
}

void WorkerSync::send_ahead(const Ahead& ahead, const std::vector<Move>& copies) {
  const at::NoGradGuard no_grad;
  std::vector<ShardSpan> spans;
  std::int64_t elements = 0;
  for (const Move& move : ahead.moves) {
    spans.push_back({move.offset, move.elements});
    elements += move.elements;
  }
  const at::Tensor sent = at::empty({elements}, pulled_.shards[ahead.shard].options());
  std::int64_t begin = 0;
  for (const Move& move : ahead.moves) {
    const at::Tensor part = sent.narrow(0, begin, move.elements);
    part.copy_(gradient_of(move));
    for (const Move& copy : copies) {
      if (copy.shard == move.shard && copy.offset == move.offset) part.add_(gradient_of(copy).to(part.device()));
    }
    begin += move.elements;
  }
  sent.div_(gradient_scale_);
  link_->push_ahead(ahead.shard, std::move(spans), sent);
}

}  // namespace sluice::ps
