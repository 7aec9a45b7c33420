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
#include "pipeline/pass_thread.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {
namespace {

std::vector<std::vector<PrefixShare>> shares_of(const Grid& grid, const PassRequest& request) {
  std::vector<std::vector<PrefixShare>> shares;
  if (grid.prefixes.empty()) return shares;
  for (const auto& of_replica : request.micro_batches) {
    std::vector<std::int64_t> sizes;
    for (const MicroBatch& micro_batch : of_replica) sizes.push_back(micro_batch.samples());
    shares.push_back(request.splits_micro_batches ? prefix_shares(sizes, grid.devices())
                                                  : whole_prefix_shares(sizes, grid.devices()));
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
      flops_(grid_->slots()),
      activations_(static_cast<std::size_t>(grid_->replicas()) * grid_->stages_per_replica()),
      gradients_(activations_.size()),
      features_(grid_->prefixes.size()),
      prefix_shares_(shares_of(*grid_, request_)),
      standings_(grid_->slots()) {
  const Schedule& schedule = request_.schedule;
  check(schedule.stages == grid_->stages_per_replica(), "a schedule with the executor's number of stages");
  check(stage_owners(schedule) == grid_->owners, "a schedule that runs each stage on the device that holds it");
  check(static_cast<int>(request_.micro_batches.size()) == grid_->replicas(), "one list of micro-batches per replica");
  for (const auto& of_replica : request_.micro_batches) {
    check(static_cast<int>(of_replica.size()) == schedule.micro_batches, "as many micro-batches as the schedule has");
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
  for (const FlopCount& of_slot : flops_) add_to(result_.flops, of_slot);
  return std::move(result_);
}

bool Pass::splits(const Action& action) const {
  return splits_[index(action.stage) * request_.schedule.micro_batches + index(action.micro_batch)] != 0;
}

// [stage]: the micro-batch whose B or W adds to the stage's gradients last. Its action reports the gradients. If the
// sync does not admit this micro-batch, REDUCE_GRAD reports them.
std::vector<std::optional<MicroBatchId>> Pass::last_gradients(const Slot& slot) const {
  std::vector<std::optional<MicroBatchId>> last(request_.schedule.stages);
  for (const Action& action : actions_of(slot.device)) {
    if (ends_gradient(action.op) && micro_batch_of(slot.replica, action.micro_batch).samples() > 0)
      last[index(action.stage)] = action.micro_batch;
  }
  return last;
}

// Reports each gradient that the action completes to the sync; empty if a later action adds to the gradients.
GradientReady Pass::reports_of(DeviceThread& thread, const Action& action) {
  if (!request_.sync || !ends_gradient(action.op)) return {};
  if (thread.last_gradients[index(action.stage)] != action.micro_batch) return {};
  return [this, &thread, stage = action.stage](ParamId param) {
    const StreamSpanScope reducing(thread.spans, Phase::kAllReduce, stage);
    request_.sync->on_grad_ready(thread.replica(), param);
  };
}

bool Pass::admit(ReplicaId replica, MicroBatchId micro_batch) {
  const bool has_samples = micro_batch_of(replica, micro_batch).samples() > 0;
  const bool asks = has_samples && request_.context.training && request_.sync;
  const bool runs = asks ? request_.sync->admits(replica, micro_batch) : has_samples;
  result_.micro_batches[index(replica)][index(micro_batch)].has_run = runs;
  return runs;
}

void Pass::work(const Slot& slot, const SlotStreams& streams) {
  const int at = grid_->slot(slot.replica, slot.device);
  const device::Stream& compute = streams.compute();
  DirectActions direct;
  DeviceThread thread{.slot = slot,
                      .streams = streams,
                      .spans = grid_->open_spans(at, compute),
                      .index = at,
                      .last_gradients = last_gradients(slot),
                      .sample_ids = std::vector<at::Tensor>(request_.schedule.micro_batches),
                      .replicas = nullptr,
                      .runner = request_.graphs ? static_cast<ActionRunner&>(*(*request_.graphs)[at]) : direct};
  if (!exchanges_.empty()) {
    thread.replicas =
        std::make_unique<OwnSum>(*exchanges_[index(slot.device)], slot.replica, thread.spans, standings_[at]);
  }
  const auto for_own_stages = [&](const auto& action) {
    for (const StageId stage : grid_->stages_of[index(slot.device)]) action(grid_->stage(slot.replica, stage));
  };
  const auto forget = [](Stage& stage) { stage.drop_in_flight(); };
  static_cast<void>(nn::take_flops());  // discards the count of a failed pass
  for_own_stages(forget);               // discards a pass that failed in another replica after this slot was done
  try {
    thread.runner.begin_pass({.step = request_.context.step,
                              .gradient_scale = request_.gradient_scale,
                              .micro_batches = request_.schedule.micro_batches});
    if (request_.context.training) {
      for_own_stages([&](Stage& stage) {
        if (request_.tree.empty()) return thread.runner.begin_gradients(stage);
        stage.begin_gradient_tree(request_.tree[index(slot.replica)], request_.watch.get());
      });
    }
    run_prefix(thread);
    run_actions(thread);
    for_own_stages([&](Stage& stage) {
      if (request_.context.training) stage.settle_gradients();  // for a stage that ran no action
      stage.end_pass();
    });
    compute.synchronize();
    thread.spans.settle();
    flops_[at] = nn::take_flops();
  } catch (const StoppedByNeighbour&) {
    for_own_stages(forget);
  } catch (...) {
    const PassReport now = report();
    const std::string work = thread.runs_prefix ? "" : work_at(slot, now.action_at(at));
    for_own_stages(forget);
    if (request_.draws_failures) log_lines(now.draw_failed(at), LogLevel::kWarning);
    const std::string where = thread.runs_prefix ? concat("replica ", index(slot.replica), " device ",
                                                          index(slot.device), " in the frozen layers")
                                                 : now.describe_action(at);
    throw describe_failure(std::current_exception(), where, {.less_memory = request_.less_memory, .work = work});
  }
}

std::string Pass::work_at(const Slot& slot, const Action* action) const {
  if (action == nullptr || action->op == Op::kReduceGradient) return {};
  return grid_->stage(slot.replica, action->stage).work_on(micro_batch_of(slot.replica, action->micro_batch));
}

void Pass::run_actions(DeviceThread& thread) {
  const auto& list = actions_of(thread.slot.device);
  for (std::size_t i = 0; i < list.size(); ++i) {
    standings_[thread.index].store({static_cast<std::uint32_t>(i)}, std::memory_order_relaxed);
    switch (list[i].op) {
      case Op::kForward: forward(thread, list[i]); break;
      case Op::kBackward:
      case Op::kInputGradient: backward(thread, list[i]); break;
      case Op::kWeightGradient: weight_gradient(thread, list[i]); break;
      case Op::kReduceGradient: reduce_gradient(thread, list[i]); break;
    }
  }
  standings_[thread.index].store({static_cast<std::uint32_t>(list.size())}, std::memory_order_relaxed);
}

Tensors Pass::receive(DeviceThread& thread, Channel channel, const Action& action) {
  std::optional<Message> message;
  {
    const StreamSpanScope span(thread.spans, Phase::kReceiveWait, action.stage, action.micro_batch);
    const WaitScope waiting(standings_[thread.index], Wait::kMessage);
    message = channel.mailbox.take(action.micro_batch);
    if (!message) throw StoppedByNeighbour{};
    thread.streams.compute().wait(message->ready);
  }
  const StreamSpanScope span(thread.spans, Phase::kReceive, action.stage, action.micro_batch);
  for (at::Tensor& tensor : message->tensors) {
    thread.keep(tensor);
    tensor = device::transfer(tensor, message->ready, thread.streams.compute(),
                              {.from = message->out, .into = thread.streams.in(channel.border)});
    thread.keep(tensor);
  }
  return std::move(message->tensors);
}

void Pass::send(DeviceThread& thread, Channel channel, const Action& action, Tensors tensors) {
  device::Event ready;
  {
    const StreamSpanScope span(thread.spans, Phase::kSend, action.stage, action.micro_batch);
    ready = thread.streams.compute().record();
  }
  channel.mailbox.put(
      action.micro_batch,
      {std::move(tensors), ready, thread.streams.out(channel.border)});  // may yield the processor: the receiver wakes
}

// Lets the head leave out logits without a target (nn::ForwardContext::targets); undefined: all are needed.
at::Tensor Pass::targets_of_tokens(const DeviceThread& thread, const Action& action) const {
  const Tensors& targets = micro_batch_of(thread.replica(), action.micro_batch).targets;
  if (!is_last(action.stage) || request_.keep_logits || targets.empty()) return {};
  const at::Tensor& first = targets.front();
  return first.dim() == 2 && first.scalar_type() == at::kLong ? first : at::Tensor();
}

StagePass Pass::pass_of(DeviceThread& thread, const Action& action) {
  StagePass pass{.context = request_.context,
                 .needs_input_gradient = index(action.stage) > first_trained_,
                 .has_loss = is_last(action.stage),
                 .splits_backward = splits(action),
                 .keeps_transformed = request_.schedule.micro_batches > 1};
  pass.context.sample_ids = sample_ids_of(thread, action.micro_batch);
  pass.context.replicas = thread.replicas.get();
  pass.context.targets = targets_of_tokens(thread, action);
  pass.watch = request_.watch.get();
  if (!request_.tree.empty())
    pass.context.micro_batch = request_.tree[index(thread.replica())].own.begin + index(action.micro_batch);
  thread.runner.prepare(pass, thread.spans.marks());
  return pass;
}

void Pass::forward(DeviceThread& thread, const Action& action) {
  const int at = grid_->stage_index(thread.replica(), action.stage);
  Tensors inputs;
  if (index(action.stage) > 0) {
    inputs = receive(thread, {activations_[at], Border::kActivations}, action);
  } else if (admit(thread.replica(), action.micro_batch)) {
    inputs = prefix_shares_.empty() ? load_inputs(thread, action, micro_batch_of(thread.replica(), action.micro_batch))
                                    : frozen_features(thread, action);
  }
  Tensors outputs;
  if (runs(thread.replica(), action.micro_batch)) {
    outputs = run_forward(thread, action, std::move(inputs));
  } else if (request_.context.training) {
    grid_->stage(thread.replica(), action.stage).take_part_in_forward(pass_of(thread, action));
  }
  if (!is_last(action.stage)) send(thread, {activations_[at + 1], Border::kActivations}, action, std::move(outputs));
}

Tensors Pass::run_forward(DeviceThread& thread, const Action& action, Tensors inputs) {
  Stage& stage = grid_->stage(thread.replica(), action.stage);
  const StreamSpanScope span(thread.spans, Phase::kForward, action.stage, action.micro_batch);
  const auto work = [&stage, id = action.micro_batch, pass = pass_of(thread, action)](const Tensors& in) {
    return stage.forward(id, in, pass);
  };
  Tensors outputs = thread.runner.run(action, ActionPart::kForward, std::exchange(inputs, {}), work);
  if (!is_last(action.stage)) return thread.runner.all_lasting(std::move(outputs));
  score_outputs(thread, action, outputs);
  return {};
}

void Pass::score_outputs(DeviceThread& thread, const Action& action, const Tensors& outputs) {
  const Tensors targets = load(thread, action, micro_batch_of(thread.replica(), action.micro_batch).targets);
  const StreamSpanScope span(thread.spans, Phase::kLoss, action.stage, action.micro_batch);
  MicroBatchResult& result = result_.micro_batches[index(thread.replica())][index(action.micro_batch)];
  {
    const at::NoGradGuard no_grad;
    if (request_.score) result.score = request_.score(outputs, targets);
    if (request_.keep_logits) result.logits = nn::in_float(thread.runner.lasting(at::atleast_1d(outputs.front())));
    if (!request_.context.training) result.loss = request_.loss(outputs, targets);
  }
  // Comes last, because recorded work may overwrite the outputs.
  if (request_.context.training) result.loss = run_loss(thread, action, targets);
}

at::Tensor Pass::run_loss(DeviceThread& thread, const Action& action, const Tensors& targets) {
  Stage& stage = grid_->stage(thread.replica(), action.stage);
  const auto work = [&stage, id = action.micro_batch, loss = request_.loss, scale = thread.runner.gradient_scale()](
                        const Tensors& in) { return Tensors{stage.apply_loss(id, in, loss, scale)}; };
  return thread.runner.lasting(thread.runner.run(action, ActionPart::kLoss, targets, work)[0]);
}

void Pass::backward(DeviceThread& thread, const Action& action) {
  const int at = grid_->stage_index(thread.replica(), action.stage);
  Tensors gradients;
  if (!is_last(action.stage)) gradients = receive(thread, {gradients_[at], Border::kGradients}, action);
  Stage& stage = grid_->stage(thread.replica(), action.stage);
  Tensors input_gradients;
  if (runs(thread.replica(), action.micro_batch)) {
    const StreamSpanScope span(thread.spans, Phase::kBackward, action.stage, action.micro_batch);
    input_gradients = run_backward(thread, action, std::move(gradients));
    if (request_.after_gradient) request_.after_gradient(thread.replica(), stage, action);
  } else {
    stage.take_part_in_backward(pass_of(thread, action));
  }
  if (index(action.stage) > 0)
    send(thread, {gradients_[at - 1], Border::kGradients}, action, std::move(input_gradients));
}

Tensors Pass::run_backward(DeviceThread& thread, const Action& action, Tensors gradients) {
  Stage& stage = grid_->stage(thread.replica(), action.stage);
  const GradientReady reports = reports_of(thread, action);
  const auto work = [&stage, id = action.micro_batch, within = thread.runner.within(reports)](const Tensors& in) {
    return stage.backward(id, in, within);
  };
  Tensors input_gradients =
      thread.runner.all_lasting(thread.runner.run(action, ActionPart::kBackward, std::exchange(gradients, {}), work));
  thread.runner.report_after(stage, reports);
  return input_gradients;
}

void Pass::weight_gradient(DeviceThread& thread, const Action& action) {
  if (!runs(thread.replica(), action.micro_batch)) return;
  const StreamSpanScope span(thread.spans, Phase::kWeightGradient, action.stage, action.micro_batch);
  run_weight_gradient(thread, action);
  if (request_.after_gradient)
    request_.after_gradient(thread.replica(), grid_->stage(thread.replica(), action.stage), action);
}

void Pass::run_weight_gradient(DeviceThread& thread, const Action& action) {
  Stage& stage = grid_->stage(thread.replica(), action.stage);
  const GradientReady reports = reports_of(thread, action);
  const auto work = [&stage, id = action.micro_batch, within = thread.runner.within(reports)](const Tensors&) {
    stage.weight_gradient(id, within);
    return Tensors{};
  };
  static_cast<void>(thread.runner.run(action, ActionPart::kWeightGradient, {}, work));
  thread.runner.report_after(stage, reports);
}

void Pass::reduce_gradient(DeviceThread& thread, const Action& action) {
  if (!request_.sync) return;
  grid_->stage(thread.replica(), action.stage).settle_gradients();  // the stage may have run no action
  const StreamSpanScope reducing(thread.spans, Phase::kAllReduce, action.stage);
  request_.sync->on_backward_done(thread.replica(), action.stage);
}

PassReport Pass::report() const {
  return {request_.schedule, std::vector<Standing>(standings_.begin(), standings_.end())};
}

}  // namespace sluice::pipeline
