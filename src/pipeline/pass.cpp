#include "pipeline/pass.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/log.h"
#include "nn/bfloat16.h"
#include "nn/flops.h"
#include "pipeline/failure.h"
#include "pipeline/pass_worker.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {
namespace {

// [replica]; empty where nothing is frozen.
std::vector<std::vector<PrefixShare>> shares_of(const Grid& grid,
                                                const std::vector<std::vector<MicroBatch>>& micro_batches) {
  std::vector<std::vector<PrefixShare>> shares;
  if (grid.prefixes.empty()) return shares;
  for (const auto& of_replica : micro_batches) {
    std::vector<std::int64_t> sizes;
    for (const MicroBatch& micro_batch : of_replica) sizes.push_back(micro_batch.samples());
    shares.push_back(prefix_shares(sizes, grid.devices()));
  }
  return shares;
}

bool ends_gradient(Op op) { return op == Op::kBackward || op == Op::kWeightGradient; }

}  // namespace

Pass::Pass(std::shared_ptr<Grid> grid, PassRequest request)
    : grid_(std::move(grid)),
      request_(std::move(request)),
      first_trained_(grid_->first_trained_stage()),
      result_{{static_cast<std::size_t>(grid_->replicas()),
               std::vector<MicroBatchResult>(request_.schedule.micro_batches)}},
      splits_(static_cast<std::size_t>(request_.schedule.stages) * request_.schedule.micro_batches),
      flops_(grid_->places()),
      activations_(static_cast<std::size_t>(grid_->replicas()) * grid_->stages_per_replica()),
      gradients_(activations_.size()),
      features_(grid_->prefixes.size()),
      prefix_shares_(shares_of(*grid_, request_.micro_batches)),
      standings_(grid_->places()) {
  const Schedule& schedule = request_.schedule;
  check(schedule.stages == grid_->stages_per_replica(), "the schedule is for as many stages as the executor has");
  check(stage_owners(schedule) == grid_->owners, "the schedule runs each stage on the device that holds it");
  check(static_cast<int>(request_.micro_batches.size()) == grid_->replicas(), "one list of micro-batches per replica");
  for (const auto& of_replica : request_.micro_batches) {
    check(static_cast<int>(of_replica.size()) == schedule.micro_batches, "one micro-batch per slot of the schedule");
  }
  const bool exchanges = request_.context.training &&
                         request_.context.numerics.batch_norm == nn::BatchNormMode::kSync &&
                         (grid_->replicas() > 1 || !request_.statistics_communicators.empty());
  for (int device = 0; exchanges && device < grid_->devices(); ++device) {
    exchanges_.push_back(std::make_unique<StatisticsExchange>(
        grid_->replicas(),
        request_.statistics_communicators.empty() ? nullptr : request_.statistics_communicators[device]));
  }
  for (const auto& actions : schedule.devices) {
    for (const Action& action : actions) {
      if (action.op == Op::kInputGradient)
        splits_[index(action.stage) * schedule.micro_batches + index(action.micro_batch)] = 1;
    }
  }
}

void Pass::stop() {
  for (auto& mailbox : activations_) mailbox.close();
  for (auto& mailbox : gradients_) mailbox.close();
  for (auto& mailbox : features_) mailbox.close();
  for (auto& exchange : exchanges_) exchange->close();
}

PassResult Pass::take_result() {
  for (const FlopCount& of_place : flops_) add_to(result_.flops, of_place);
  return std::move(result_);
}

bool Pass::splits(const Action& action) const {
  return splits_[index(action.stage) * request_.schedule.micro_batches + index(action.micro_batch)] != 0;
}

// Per stage, the micro-batch whose B or W is the last to add to its gradients: they are reported while it runs. Where
// the sync does not admit it, the REDUCE_GRAD reports them.
std::vector<std::optional<MicroBatchId>> Pass::last_gradients(const Place& place) const {
  std::vector<std::optional<MicroBatchId>> last(request_.schedule.stages);
  for (const Action& action : actions_of(place.device)) {
    if (ends_gradient(action.op) && micro_batch_of(place.replica, action.micro_batch).samples() > 0)
      last[index(action.stage)] = action.micro_batch;
  }
  return last;
}

// Tells the sync of each gradient that the action completes; empty where another action adds to them later.
GradientReady Pass::reports_of(Worker& worker, const Action& action) {
  if (!request_.sync || !ends_gradient(action.op)) return {};
  if (worker.last_gradients[index(action.stage)] != action.micro_batch) return {};
  return [this, &worker, stage = action.stage](ParamId param) {
    const StreamSpanScope reducing(worker.spans, Phase::kAllReduce, stage);
    request_.sync->on_grad_ready(worker.replica(), param);
  };
}

bool Pass::admit(ReplicaId replica, MicroBatchId micro_batch) {
  const bool has_samples = micro_batch_of(replica, micro_batch).samples() > 0;
  const bool asks = has_samples && request_.context.training && request_.sync;
  const bool runs = asks ? request_.sync->admits(replica, micro_batch) : has_samples;
  result_.micro_batches[index(replica)][index(micro_batch)].has_run = runs;
  return runs;
}

void Pass::work(const Place& place, const PlaceStreams& streams) {
  const int at = grid_->place(place.replica, place.device);
  const device::Stream& compute = streams.compute();
  Worker worker{.place = place,
                .streams = streams,
                .spans = grid_->open_spans(at, compute),
                .index = at,
                .last_gradients = last_gradients(place),
                .sample_ids = std::vector<at::Tensor>(request_.schedule.micro_batches),
                .replicas = nullptr,
                .graphs = request_.graphs ? (*request_.graphs)[at].get() : nullptr};
  if (!exchanges_.empty()) {
    worker.replicas =
        std::make_unique<OwnSum>(*exchanges_[index(place.device)], place.replica, worker.spans, standings_[at]);
  }
  const auto for_own_stages = [&](const auto& action) {
    for (const StageId stage : grid_->stages_of[index(place.device)]) action(grid_->stage(place.replica, stage));
  };
  const auto forget = [](Stage& stage) { stage.drop_in_flight(); };
  static_cast<void>(nn::take_flops());  // of a pass that failed
  for_own_stages(forget);               // of one that failed in another replica, when all was done here
  try {
    if (worker.graphs != nullptr)
      worker.graphs->begin(request_.context.step, request_.gradient_scale, request_.schedule.micro_batches);
    if (request_.context.training) for_own_stages([&](Stage& stage) { begin(worker, stage); });
    run_prefix(worker);
    run_actions(worker);
    for_own_stages([&](Stage& stage) {
      if (request_.context.training) stage.settle_gradients();  // of a stage that has run nothing
      stage.end_pass();
    });
    compute.synchronize();
    worker.spans.settle();
    flops_[at] = nn::take_flops();
  } catch (const StoppedByNeighbour&) {
    for_own_stages(forget);
  } catch (...) {
    const PassReport now = report();
    const std::string work = worker.runs_prefix ? "" : work_at(place, now.action_at(at));
    for_own_stages(forget);
    if (request_.draws_failures) log_lines(now.draw_failed(at), LogLevel::kWarning);
    const std::string where = worker.runs_prefix ? concat("replica ", index(place.replica), " device ",
                                                          index(place.device), " in the frozen layers")
                                                 : now.describe_action(at);
    throw describe_failure(std::current_exception(), where, {.less_memory = request_.less_memory, .work = work});
  }
}

std::string Pass::work_at(const Place& place, const Action* action) const {
  if (action == nullptr || action->op == Op::kReduceGradient) return {};
  return grid_->stage(place.replica, action->stage).work_on(micro_batch_of(place.replica, action->micro_batch));
}

void Pass::begin(Worker& worker, Stage& stage) {
  if (worker.graphs == nullptr) {
    stage.begin_gradients();
  } else {
    stage.begin_gradients_in_place();
  }
}

void Pass::run_actions(Worker& worker) {
  const auto& list = actions_of(worker.place.device);
  for (std::size_t i = 0; i < list.size(); ++i) {
    standings_[worker.index].store({static_cast<std::uint32_t>(i)}, std::memory_order_relaxed);
    switch (list[i].op) {
      case Op::kForward: forward(worker, list[i]); break;
      case Op::kBackward:
      case Op::kInputGradient: backward(worker, list[i]); break;
      case Op::kWeightGradient: weight_gradient(worker, list[i]); break;
      case Op::kReduceGradient: reduce_gradient(worker, list[i]); break;
    }
  }
  standings_[worker.index].store({static_cast<std::uint32_t>(list.size())}, std::memory_order_relaxed);
}

at::Tensor Pass::receive(Worker& worker, Way way, const Action& action) {
  std::optional<Message> message;
  {
    const StreamSpanScope span(worker.spans, Phase::kReceiveWait, action.stage, action.micro_batch);
    const WaitScope waiting(standings_[worker.index], Wait::kMessage);
    message = way.mailbox.take(action.micro_batch);
    if (!message) throw StoppedByNeighbour{};
    worker.streams.compute().wait(message->ready);
  }
  const StreamSpanScope span(worker.spans, Phase::kReceive, action.stage, action.micro_batch);
  const at::Tensor own = device::transfer(message->tensor, message->ready, worker.streams.compute(),
                                          {.from = message->out, .into = worker.streams.in(way.border)});
  worker.keep(message->tensor);
  worker.keep(own);
  return own;
}

void Pass::send(Worker& worker, Way way, const Action& action, const at::Tensor& tensor) {
  device::Event ready;
  {
    const StreamSpanScope span(worker.spans, Phase::kSend, action.stage, action.micro_batch);
    ready = worker.streams.compute().record();
  }
  way.mailbox.put(action.micro_batch,
                  {tensor, ready, worker.streams.out(way.border)});  // may cost the processor: the receiver wakes
}

StagePass Pass::pass_of(Worker& worker, const Action& action) {
  StagePass pass{.context = request_.context,
                 .needs_input_gradient = index(action.stage) > first_trained_,
                 .has_loss = is_last(action.stage),
                 .splits_backward = splits(action),
                 .keeps_transformed = request_.schedule.micro_batches > 1,
                 .marks = worker.graphs != nullptr ? nullptr : worker.spans.marks()};
  pass.context.sample_ids = sample_ids_of(worker, action.micro_batch);
  pass.context.replicas = worker.replicas.get();
  if (worker.graphs != nullptr) pass.context.step_in_memory = worker.graphs->step();
  return pass;
}

Tensors Pass::run(Worker& worker, const Action& action, ActionPart part, Tensors inputs, const device::GraphWork& work,
                  Answer answer) {
  if (worker.graphs == nullptr) return work(inputs);
  Tensors outputs = worker.graphs->run(action, part, inputs, work);
  for (at::Tensor& output : outputs) {
    if (answer == Answer::kCopied && output.defined()) output = output.clone();
  }
  return outputs;
}

void Pass::forward(Worker& worker, const Action& action) {
  const int slot = grid_->slot(worker.replica(), action.stage);
  at::Tensor input;
  if (index(action.stage) > 0) {
    input = receive(worker, {activations_[slot], Border::kActivations}, action);
  } else if (admit(worker.replica(), action.micro_batch)) {
    input = prefix_shares_.empty() ? load_inputs(worker, action, micro_batch_of(worker.replica(), action.micro_batch))
                                   : frozen_features(worker, action);
  }
  Stage& stage = grid_->stage(worker.replica(), action.stage);
  at::Tensor output;
  if (runs(worker.replica(), action.micro_batch)) {
    const StreamSpanScope span(worker.spans, Phase::kForward, action.stage, action.micro_batch);
    const auto work = [&stage, id = action.micro_batch, pass = pass_of(worker, action)](const Tensors& in) {
      return Tensors{stage.forward(id, in[0], pass)};
    };
    output = run(worker, action, ActionPart::kForward, {std::move(input)}, work,
                 is_last(action.stage) ? Answer::kInPlace : Answer::kCopied)[0];
    if (is_last(action.stage)) finish(worker, action, output);
  } else if (request_.context.training) {
    stage.take_part_in_forward(pass_of(worker, action));
  }
  if (!is_last(action.stage)) send(worker, {activations_[slot + 1], Border::kActivations}, action, output);
}

void Pass::finish(Worker& worker, const Action& action, const at::Tensor& logits) {
  const at::Tensor targets = load(worker, action, micro_batch_of(worker.replica(), action.micro_batch).targets);
  const StreamSpanScope span(worker.spans, Phase::kLoss, action.stage, action.micro_batch);
  MicroBatchResult& result = result_.micro_batches[index(worker.replica())][index(action.micro_batch)];
  {
    const at::NoGradGuard no_grad;
    if (request_.score) result.score = request_.score(logits, targets);
    if (request_.keep_logits) result.logits = nn::in_float(worker.graphs != nullptr ? logits.clone() : logits);
    if (!request_.context.training) result.loss = request_.loss(logits, targets);
  }
  // The last one: recorded work may write where the logits are.
  if (request_.context.training) result.loss = run_loss(worker, action, targets);
}

at::Tensor Pass::run_loss(Worker& worker, const Action& action, const at::Tensor& targets) {
  Stage& stage = grid_->stage(worker.replica(), action.stage);
  GradientScale scale{.number = request_.gradient_scale};
  if (worker.graphs != nullptr) scale.in_memory = worker.graphs->gradient_scale();
  const auto work = [&stage, id = action.micro_batch, loss = request_.loss, scale](const Tensors& in) {
    return Tensors{stage.apply_loss(id, in[0], loss, scale)};
  };
  return run(worker, action, ActionPart::kLoss, {targets}, work)[0];
}

void Pass::backward(Worker& worker, const Action& action) {
  const int slot = grid_->slot(worker.replica(), action.stage);
  at::Tensor output_gradient;
  if (!is_last(action.stage)) output_gradient = receive(worker, {gradients_[slot], Border::kGradients}, action);
  Stage& stage = grid_->stage(worker.replica(), action.stage);
  at::Tensor input_gradient;
  if (runs(worker.replica(), action.micro_batch)) {
    const StreamSpanScope span(worker.spans, Phase::kBackward, action.stage, action.micro_batch);
    input_gradient = run_backward(worker, action, std::move(output_gradient));
    if (request_.after_gradient) request_.after_gradient(worker.replica(), stage, action);
  } else {
    stage.take_part_in_backward(pass_of(worker, action));
  }
  if (index(action.stage) > 0) send(worker, {gradients_[slot - 1], Border::kGradients}, action, input_gradient);
}

// Recorded work tells nobody anything: what it completes is told behind it.
at::Tensor Pass::run_backward(Worker& worker, const Action& action, at::Tensor output_gradient) {
  Stage& stage = grid_->stage(worker.replica(), action.stage);
  const GradientReady reports = reports_of(worker, action);
  const bool reports_within = worker.graphs == nullptr;
  const auto work = [&stage, id = action.micro_batch, within = reports_within ? reports : GradientReady{}](
                        const Tensors& in) { return Tensors{stage.backward(id, in[0], within)}; };
  at::Tensor input_gradient = run(worker, action, ActionPart::kBackward, {std::move(output_gradient)}, work)[0];
  if (reports && !reports_within) stage.report_gradients(reports);
  return input_gradient;
}

void Pass::weight_gradient(Worker& worker, const Action& action) {
  if (!runs(worker.replica(), action.micro_batch)) return;
  const StreamSpanScope span(worker.spans, Phase::kWeightGradient, action.stage, action.micro_batch);
  run_weight_gradient(worker, action);
  if (request_.after_gradient)
    request_.after_gradient(worker.replica(), grid_->stage(worker.replica(), action.stage), action);
}

void Pass::run_weight_gradient(Worker& worker, const Action& action) {
  Stage& stage = grid_->stage(worker.replica(), action.stage);
  const GradientReady reports = reports_of(worker, action);
  const bool reports_within = worker.graphs == nullptr;
  const auto work = [&stage, id = action.micro_batch,
                     within = reports_within ? reports : GradientReady{}](const Tensors&) {
    stage.weight_gradient(id, within);
    return Tensors{};
  };
  static_cast<void>(run(worker, action, ActionPart::kWeightGradient, {}, work));
  if (reports && !reports_within) stage.report_gradients(reports);
}

void Pass::reduce_gradient(Worker& worker, const Action& action) {
  if (!request_.sync) return;
  grid_->stage(worker.replica(), action.stage).settle_gradients();  // it may have run nothing
  const StreamSpanScope reducing(worker.spans, Phase::kAllReduce, action.stage);
  request_.sync->on_backward_done(worker.replica(), action.stage);
}

PassReport Pass::report() const {
  return {request_.schedule, std::vector<Standing>(standings_.begin(), standings_.end())};
}

}  // namespace sluice::pipeline
