#include "train/loop.h"

#include <cmath>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "engine/divergence.h"
#include "train/plan_description.h"
#include "train/recorded_step.h"
#include "train/resume.h"
#include "train/setup.h"
#include "train/step_batch.h"
#include "train/stop_signal.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

constexpr Nanoseconds kLookInterval = 5'000'000'000;

}  // namespace

void Loop::run() {
  try {
    run_to_the_end();
  } catch (const InterruptedError&) {
    throw;
  } catch (const DivergedError& error) {
    if (parts_.records == nullptr) throw;
    report_fault(error);
    if (parts_.updates != nullptr) parts_.updates->give_up();
    const auto good = checkpoint_to_go_back_to();
    const bool goes_on_there = good && *good != last_checkpoint_ && set_aside_what_follows(*good);
    throw DivergedError(concat(error.what(), "; ", where_to_go_back(good, goes_on_there)));
  } catch (const Error& error) {
    if (parts_.records != nullptr) report_fault(error);
    throw;
  }
}

void Loop::run_to_the_end() {
  run_until_done_or_stopped();
  report_outside_of_steps();
  if (parts_.trace != nullptr) parts_.trace->finish();
  if (parts_.torch != nullptr) report_torch();
  if (kernels_ && parts_.records != nullptr) kernels_->report(parts_.records->reporter);
  if (!is_finished() || progress_.evaluation_due) stop_early();
  check_records();
  if (!is_saved()) save();  // again, where the disk could not take it
  report_outside_of_steps();
}

void Loop::report_torch() {
  parts_.torch->finish();
  if (parts_.records != nullptr) parts_.torch->report(&parts_.records->reporter);
}

void Loop::report_fault(const Error& error) {
  Records& records = *parts_.records;
  const bool has_cause = records.explain && error.exit_code() == ExitCode::kPeer;
  record_fault(has_cause ? records.explain(error).what() : error.what());
}

void Loop::record_fault(const std::string& what) {
  parts_.records->reporter.event("fault", {{"step", progress_.steps_done}, {"what", what}});
}

// Whoever removes a run's directory may do so by mistake; a file that is gone takes every write and keeps none.
void Loop::check_records() {
  if (parts_.records == nullptr) return;
  last_look_ = now_ns();
  if (const auto gone = parts_.records->reporter.missing()) end_without_records(*gone);
}

void Loop::end_without_records(const std::filesystem::path& gone) {
  const std::string what = concat(gone.string(), " was removed or renamed while the run wrote to it, and what it had ",
                                  "recorded there is gone");
  if (parts_.records->reporter.is_replaced())
    throw StorageError(concat(what, "; another directory is in its place, so nothing was saved"));
  std::string rescued;
  try {
    if (parts_.updates != nullptr && !parts_.updates->holds_weights())
      throw StorageError("its weights are the server's alone, whose run has ended");
    save();
    rescued = concat("the state after step ", progress_.steps_done,
                     " was saved: ", options_.can_resume ? "go on with --resume " : "", last_checkpoint_.string());
  } catch (const Error& error) {
    rescued = concat("the state after step ", progress_.steps_done, " could not be saved either: ", error.what());
  }
  throw StorageError(concat(what, "; ", rescued));
}

bool Loop::must_stop() const {
  if (parts_.updates != nullptr) return has_no_more_updates_;
  return stop_is_agreed_ || (parts_.engine.step().is_alone() && StopSignal::requested());
}

void Loop::run_until_done_or_stopped() {
  for (;;) {
    const bool has_waited = now_ns() - last_look_ >= kLookInterval;
    if (has_waited || is_finished() || checkpoint_is_due()) check_records();
    // Before the last evaluation, which takes its time: nothing of the training can be lost any more.
    if (is_finished() && !is_saved()) save_or_warn();
    if (progress_.evaluation_due) evaluate_and_report();
    if (is_finished() || must_stop()) return;
    if (checkpoint_is_due()) save_or_warn();
    take_next_plan();  // after the checkpoint: a run that goes on from there takes it, too
    train_one_step();
  }
}

void Loop::take_next_plan() {
  const auto plan = parts_.plans.next ? parts_.plans.next(progress_.steps_done) : std::nullopt;
  const auto freeze = parts_.plans.freeze_record ? parts_.plans.freeze_record(progress_.steps_done) : nullptr;
  if (parts_.records != nullptr && !freeze.is_null()) parts_.records->reporter.event("freeze", freeze);
  if (!plan) return;
  report_outside_of_steps();
  const Plan before = parts_.engine.plan();
  const Nanoseconds begin = now_ns();
  try {
    parts_.engine.apply(*plan);
  } catch (const engine::PlanRefused& refusal) {
    return stay_after(refusal);
  }
  go_on_after(before, begin, freeze);
}

void Loop::go_on_after(const Plan& before, Nanoseconds begin, const nlohmann::ordered_json& freeze) {
  const Plan& plan = parts_.engine.plan();
  // Another share of every batch, or samples whose rows in the cache may be gone with a change of layers.
  if (plan.replicas != before.replicas || (parts_.features && plan.frozen_layers != before.frozen_layers)) {
    train_data_.reset();  // its threads end first
    train_data_ = parts_.open_train_data(progress_.position);
  }
  const double seconds = to_s(now_ns() - begin);
  if (parts_.records == nullptr) return;
  log_info(concat("after step ", progress_.steps_done, ": ", in_words(plan), "; before: ", in_words(before),
                  "; changed in ", fixed(seconds, 3), " s"));
  report::Reporter& reporter = parts_.records->reporter;
  nlohmann::ordered_json transition{
      {"step", progress_.steps_done}, {"from", plan_json(before)}, {"to", plan_json(plan)}, {"seconds", seconds}};
  if (const auto measured = reporter.step_ms_of_plan()) transition["measured_before_ms"] = *measured;
  if (!freeze.is_null()) {
    for (const char* predicted : {"predicted_before_ms", "predicted_ms"}) transition[predicted] = freeze.at(predicted);
  }
  reporter.event("transition", transition);
  parts_.records->tell_plan(progress_.steps_done);
}

void Loop::stay_after(const engine::PlanRefused& refusal) {
  if (parts_.plans.refused) parts_.plans.refused(progress_.steps_done);
  log_warning(concat("after step ", progress_.steps_done, ": ", refusal.what()));
  if (parts_.records != nullptr) record_fault(refusal.what());
}

// Batch-norm can keep the training loss finite while the weights are long past use: evaluation shows it.
void Loop::evaluate_and_report() {
  const std::optional<report::EvalRecord> record = evaluate();
  if (!record) return;
  progress_.evaluation_due = false;
  if (parts_.records != nullptr) parts_.records->reporter.eval(*record);
  if (!std::isfinite(record->counts.loss())) {
    throw DivergedError(concat("after step ", progress_.steps_done, ": the loss on the test set is ",
                               fixed(record->counts.loss(), 4), "; ", engine::smaller_updates_advice()));
  }
}

// A step with a finite loss after a checkpoint shows that its weights are good. The newest one may be of the very
// weights that gave the bad loss.
std::optional<fs::path> Loop::checkpoint_to_go_back_to() const {
  if (!proven_checkpoint_.empty()) return proven_checkpoint_;
  const auto newest = storage::step_of(last_checkpoint_);
  if (!newest) return std::nullopt;
  for (const std::int64_t step : parts_.records->checkpoints.steps()) {
    if (step < *newest) return last_checkpoint_.parent_path() / storage::checkpoint_name(step);
  }
  return std::nullopt;
}

std::string Loop::where_to_go_back(const std::optional<fs::path>& good, bool goes_on_there) const {
  if (last_checkpoint_.empty()) return "no checkpoint was saved before it";
  const std::string good_one = good ? concat("the last good checkpoint is ", good->string()) : "";
  if (good == last_checkpoint_) return good_one;
  return concat(last_checkpoint_.string(), " holds the weights that gave this loss, ",
                good ? good_one : "and there is no earlier one",
                goes_on_there && options_.can_resume ? ", from which --resume auto goes on" : "");
}

// --resume auto would take the newest checkpoint, and its weights give the same loss again. False where that may
// happen.
bool Loop::set_aside_what_follows(const fs::path& good) {
  const auto step = storage::step_of(good);
  if (!step || good.parent_path() != last_checkpoint_.parent_path()) return false;
  try {
    parts_.records->checkpoints.set_aside_newer_than(*step);
  } catch (const StorageError& error) {
    log_warning(error.what());
    return false;
  }
  return true;
}

std::optional<std::int64_t> Loop::proven_step() const {
  return proven_checkpoint_.empty() ? std::nullopt : storage::step_of(proven_checkpoint_);
}

std::optional<RecordedStep> Loop::next_step(double lr) {
  const engine::StepWishes wishes{.count_correct = true, .stop = StopSignal::requested()};
  if (parts_.updates != nullptr) return parts_.updates->next_update(parts_.engine, wishes);
  if (parts_.torch != nullptr) parts_.torch->before_step(progress_.steps_done + 1);
  RecordedStep step = run_recorded_step(*train_data_, parts_.engine, progress_.steps_done, lr, wishes);
  if (kernels_) step.spans = kernels_->attributed(std::move(step.spans));
  return step;
}

void Loop::train_one_step() {
  report_outside_of_steps();
  const std::int64_t number = progress_.steps_done + 1;
  const double lr = options_.lr.at(progress_.steps_done);
  const std::optional<RecordedStep> step = next_step(lr);
  has_no_more_updates_ = !step;
  if (!step) {
    if (parts_.records == nullptr) return;
    for (const auto& [name, fields] : parts_.updates->last_events()) parts_.records->reporter.event(name, fields);
    return;
  }
  const auto& [batch, stats, spans, lr_of_server, events] = *step;
  stop_is_agreed_ = stats.stop;
  if (!stats.skipped) proven_checkpoint_ = last_checkpoint_;  // the loss of one that is may be anything

  progress_ = {number, data::position_after(batch)};
  progress_.evaluation_due = evaluation_is_due_after(batch);
  tell_traces(spans, stats);
  const profiler::StepBreakdown breakdown = profiler::break_down(spans);
  if (parts_.times != nullptr) parts_.times->add(breakdown);
  if (parts_.records == nullptr) return;
  for (const auto& [name, fields] : events) parts_.records->reporter.event(name, fields);
  parts_.records->reporter.step({.step = number,
                                 .epoch = batch.epoch,
                                 .batch = batch.batch,
                                 .batches = batch.batches,
                                 .stats = stats,
                                 .lr = lr_of_server.value_or(lr),
                                 .breakdown = breakdown,
                                 .evaluation_follows = progress_.evaluation_due},
                                spans, number % options_.log_every == 0 || is_finished());
  if (batch.batch + 1 == batch.batches || is_finished()) report_features();
}

void Loop::tell_traces(const StepSpans& spans, const StepStats& stats) {
  if (parts_.trace != nullptr) parts_.trace->add(spans, stats, parts_.engine.plan());
  if (parts_.torch != nullptr) parts_.torch->after_step(progress_.steps_done, progress_.evaluation_due);
}

void Loop::report_features() {
  if (!parts_.features || parts_.engine.plan().frozen_layers == 0) return;
  nlohmann::ordered_json fields{{"step", progress_.steps_done}};
  fields.update(parts_.features->fields());
  parts_.records->reporter.event("cache", fields);
}

bool Loop::evaluation_is_due_after(const data::Batch& batch) const {
  if (is_finished()) return true;
  if (parts_.updates != nullptr && !parts_.updates->holds_weights()) return false;  // it is far behind
  const bool epoch_ends = batch.batch + 1 == batch.batches;
  return options_.eval_every_steps > 0 ? progress_.steps_done % options_.eval_every_steps == 0 : epoch_ends;
}

std::optional<report::EvalRecord> Loop::evaluate() {
  const Nanoseconds begin = now_ns();
  const SpanScope span(parts_.engine.recorder().process(), Phase::kEvaluation);
  report::EvalRecord record{.step = progress_.steps_done, .epoch = progress_.position.epoch};
  const auto eval_data = parts_.open_eval_data();
  while (const auto batch = eval_data->next()) {
    const engine::EvalStats stats = parts_.engine.step().evaluate(as_micro_batch(*batch), StopSignal::requested());
    report_outside_of_steps();  // makes room for the spans of the next batch
    stop_is_agreed_ = stats.stop;
    if (stop_is_agreed_) return std::nullopt;
    record.counts += stats.counts;
  }
  record.seconds = to_s(now_ns() - begin);
  return record;
}

bool Loop::checkpoint_is_due() const {
  if (progress_.steps_done == 0 || is_saved()) return false;
  const bool by_steps =
      options_.checkpoint_every_steps > 0 && progress_.steps_done % options_.checkpoint_every_steps == 0;
  const bool by_time =
      options_.checkpoint_every_minutes > 0 && to_s(now_ns() - last_save_) >= options_.checkpoint_every_minutes * 60.0;
  if (!by_steps && !by_time) return false;
  const bool has_weights = parts_.updates == nullptr || parts_.updates->holds_weights();
  if (!has_weights) parts_.updates->want_weights();
  return has_weights;
}

void Loop::report_outside_of_steps() {
  const StepSpans spans = parts_.engine.recorder().collect(progress_.steps_done, 0, 0);
  if (kernels_) kernels_->forget();
  if (parts_.trace != nullptr) parts_.trace->add_outside(spans.process);
  if (parts_.records != nullptr) parts_.records->reporter.outside_of_steps(spans.process);
}

void Loop::save() {
  const Nanoseconds begin = now_ns();
  const SpanScope span(parts_.engine.recorder().process(), Phase::kCheckpoint);
  Records& records = *parts_.records;
  const auto held = records.hold ? records.hold() : std::unique_lock<std::timed_mutex>();
  try {
    last_checkpoint_ = records.checkpoints.save(progress_.steps_done, records.capture(progress_), proven_step());
  } catch (const DivergedError& error) {
    throw DivergedError(concat(error.what(), "; ", engine::smaller_updates_advice()));
  }
  if (parts_.updates != nullptr) parts_.updates->saved(records.checkpoints.steps());
  saved_step_ = progress_.steps_done;
  last_save_ = now_ns();
  const double seconds = to_s(last_save_ - begin);
  records.reporter.event("checkpoint",
                         {{"step", progress_.steps_done}, {"path", last_checkpoint_.string()}, {"save_s", seconds}});
  log_info(concat("checkpoint ", last_checkpoint_.string(), " saved in ", fixed(seconds, 2), " s"));
}

void Loop::save_or_warn() {
  try {
    save();
  } catch (const StorageError& error) {
    last_save_ = now_ns();
    report_fault(error);
    log_warning(concat("training goes on without this checkpoint: ", error.what()));
  }
}

void Loop::stop_early() {
  const auto why = parts_.updates != nullptr ? parts_.updates->why_over() : std::nullopt;
  if (!why) stop_for_signal();
  if (progress_.steps_done > first_step_ && !is_saved()) save();
  const std::string what =
      concat(why->what(), " (after step ", progress_.steps_done, " of ", options_.total_steps, "); ",
             last_checkpoint_.empty() ? "no checkpoint was saved" : concat("checkpoint ", last_checkpoint_.string()));
  if (why->exit_code() != ExitCode::kInterrupted) throw Error(why->exit_code(), what);
  report_outside_of_steps();
  parts_.records->reporter.summary("interrupted", progress_.steps_done);
  throw InterruptedError(concat(what, "; go on with --resume auto"));
}

void Loop::stop_for_signal() {
  const std::string signal = StopSignal::requested() ? StopSignal::name() : "a signal to another process of the run";
  const bool has_trained = progress_.steps_done > first_step_;
  const std::string stopped = concat("stopped by ", signal, has_trained ? " after step " : " at step ",
                                     progress_.steps_done, " of ", options_.total_steps);
  if (parts_.records == nullptr) throw InterruptedError(concat(stopped, "; rank 0 keeps the checkpoint"));
  if (!has_trained && !is_saved()) {  // another run's checkpoint is no better for being saved again
    report_outside_of_steps();
    parts_.records->reporter.summary("interrupted", progress_.steps_done);
    throw InterruptedError(concat(stopped, "; nothing was trained, and no checkpoint was saved"));
  }
  check_records();
  log_info(concat("received ", signal, ": saving a checkpoint before stopping (a second signal stops at once)"));
  if (!is_saved()) save();
  report_outside_of_steps();
  parts_.records->reporter.summary("interrupted", progress_.steps_done);
  throw InterruptedError(concat(stopped, "; checkpoint ", last_checkpoint_.string(),
                                options_.can_resume ? "; go on with --resume auto"
                                                    : "; a new run can begin with its model.safetensors "
                                                      "(model.weights)"));
}

}  // namespace sluice::train
