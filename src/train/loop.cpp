#include "train/loop.h"

#include <cmath>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/setup.h"
#include "train/stop_signal.h"

namespace sluice::train {

void Loop::run() {
  try {
    run_until_done_or_stopped();
  } catch (const DivergedError& error) {
    parts_.reporter.event("fault", {{"step", progress_.steps_done}, {"what", error.what()}});
    throw DivergedError(concat(error.what(), "; ", where_to_go_back()));
  }
  if (!is_finished() || progress_.evaluation_due) stop_for_signal();
  if (saved_step_ != progress_.steps_done) save();  // again, where the disk could not take it
}

void Loop::run_until_done_or_stopped() {
  for (;;) {
    // Before the last evaluation, which takes its time: nothing of the training can be lost any more.
    if (is_finished() && saved_step_ != progress_.steps_done) save_or_warn();
    if (progress_.evaluation_due) evaluate_and_report();
    if (is_finished() || StopSignal::requested()) return;
    if (checkpoint_is_due()) save_or_warn();
    train_one_step();
  }
}

// Batch-norm can keep the training loss finite while the weights are long past use: evaluation shows it.
void Loop::evaluate_and_report() {
  const std::optional<EvalRecord> record = evaluate();
  if (!record) return;
  progress_.evaluation_due = false;
  parts_.reporter.eval(*record);
  if (!std::isfinite(record->counts.loss())) {
    throw DivergedError(concat("after step ", progress_.steps_done, ": the loss on the test set is ",
                               record->counts.loss(), "; lower train.lr or raise train.warmup_steps"));
  }
}

// A step with a finite loss after a checkpoint shows that its weights are good. The newest one may be of the very
// weights that gave the bad loss.
std::string Loop::where_to_go_back() const {
  if (last_checkpoint_.empty()) return "no checkpoint was saved before it";
  if (last_checkpoint_ == proven_checkpoint_) return concat("the last good checkpoint is ", last_checkpoint_.string());
  const std::string suspect = concat(last_checkpoint_.string(), " holds the weights that gave this loss, ");
  const auto newest = step_of(last_checkpoint_);
  for (const std::int64_t step : parts_.checkpoints.steps()) {
    if (newest && step < *newest) return concat(suspect, "the last good checkpoint is that of step ", step);
  }
  return suspect + "there is no earlier one";
}

std::optional<std::int64_t> Loop::proven_step() const {
  return proven_checkpoint_.empty() ? std::nullopt : step_of(proven_checkpoint_);
}

void Loop::train_one_step() {
  parts_.executor.recorder().clear();
  const Nanoseconds begin = now_ns();
  const std::optional<data::Batch> batch = parts_.train_data.next();
  const Nanoseconds loaded = now_ns();
  const std::int64_t number = progress_.steps_done + 1;
  const bool to_log = number % options_.log_every == 0 || number == options_.total_steps;
  const double lr = options_.lr.at(progress_.steps_done);
  const StepStats stats = parts_.step.run(as_micro_batch(*batch), progress_.steps_done, lr, to_log);
  const Nanoseconds duration = now_ns() - begin;
  proven_checkpoint_ = last_checkpoint_;

  progress_ = {number, data::position_after(*batch)};
  progress_.evaluation_due = evaluation_is_due_after(*batch);
  parts_.reporter.step({.step = number,
                        .epoch = batch->epoch,
                        .batch = batch->batch,
                        .batches = batch->batches,
                        .stats = stats,
                        .lr = lr,
                        .duration = duration,
                        .breakdown = profiler::break_down(parts_.executor.recorder(), duration, loaded - begin)},
                       to_log);
}

bool Loop::evaluation_is_due_after(const data::Batch& batch) const {
  if (is_finished()) return true;
  const bool epoch_ends = batch.batch + 1 == batch.batches;
  return options_.eval_every_steps > 0 ? progress_.steps_done % options_.eval_every_steps == 0 : epoch_ends;
}

std::optional<EvalRecord> Loop::evaluate() {
  const Nanoseconds begin = now_ns();
  EvalRecord record{.step = progress_.steps_done, .epoch = progress_.position.epoch};
  const auto eval_data = parts_.open_eval_data();
  while (const auto batch = eval_data->next()) {
    if (StopSignal::requested()) return std::nullopt;
    record.counts += parts_.step.evaluate(as_micro_batch(*batch));
  }
  record.seconds = to_s(now_ns() - begin);
  return record;
}

bool Loop::checkpoint_is_due() const {
  if (progress_.steps_done == 0 || saved_step_ == progress_.steps_done) return false;
  const bool by_steps =
      options_.checkpoint_every_steps > 0 && progress_.steps_done % options_.checkpoint_every_steps == 0;
  const bool by_time =
      options_.checkpoint_every_minutes > 0 && to_s(now_ns() - last_save_) >= options_.checkpoint_every_minutes * 60.0;
  return by_steps || by_time;
}

void Loop::save() {
  const Nanoseconds begin = now_ns();
  last_checkpoint_ = parts_.checkpoints.save(progress_.steps_done, parts_.capture(progress_), proven_step());
  saved_step_ = progress_.steps_done;
  last_save_ = now_ns();
  const double seconds = to_s(last_save_ - begin);
  parts_.reporter.event("checkpoint",
                        {{"step", progress_.steps_done}, {"path", last_checkpoint_.string()}, {"save_s", seconds}});
  log_info(concat("checkpoint ", last_checkpoint_.string(), " saved in ", fixed(seconds, 2), " s"));
}

void Loop::save_or_warn() {
  try {
    save();
  } catch (const StorageError& error) {
    last_save_ = now_ns();
    parts_.reporter.event("fault", {{"step", progress_.steps_done}, {"what", error.what()}});
    log_warning(concat("training goes on without this checkpoint: ", error.what()));
  }
}

void Loop::stop_for_signal() {
  log_info(
      concat("received ", StopSignal::name(), ": saving a checkpoint before stopping (a second signal stops at once)"));
  if (saved_step_ != progress_.steps_done) save();
  parts_.reporter.summary("interrupted", progress_.steps_done);
  throw InterruptedError(concat("stopped by ", StopSignal::name(), " after step ", progress_.steps_done, " of ",
                                options_.total_steps, "; checkpoint ", last_checkpoint_.string(),
                                "; go on with --resume auto"));
}

}  // namespace sluice::train
