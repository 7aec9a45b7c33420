#include "train/run/loop.h"

#include <algorithm>
#include <cmath>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "engine/divergence.h"
#include "train/run/saved_average.h"
#include "train/setup/digests.h"
#include "train/setup/noise_watch.h"
#include "train/setup/peers.h"
#include "train/setup/step_batch.h"
#include "train/setup/stop_signal.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

constexpr Nanoseconds kLookInterval = 5'000'000'000;

std::int64_t multiples(std::int64_t every, std::int64_t first, std::int64_t last) {
  return std::max<std::int64_t>(last / every - (first - 1) / every, 0);
}

std::int64_t remaining_evaluations(const LoopOptions& options, std::int64_t steps_done, const EpochPosition& here) {
  const config::TrainConfig& train = options.train;
  const std::int64_t total = options.total_steps, steps = train.eval_every_steps;
  if (steps > 0) return multiples(steps, steps_done, total) + (total % steps == 0 ? 0 : 1);
  const std::int64_t after = total - steps_done - (here.batches - here.batch - 1);
  const std::int64_t ended = after < 0 ? 0 : 1 + after / here.batches, last = here.epoch + ended;
  const bool ends_evaluated = ended > 0 && after % here.batches == 0 && last % train.eval_every_epochs == 0;
  return multiples(train.eval_every_epochs, here.epoch + 1, last) + (ends_evaluated ? 0 : 1);
}

}  // namespace

// Lets other threads save meanwhile. The state is that of the last whole step, unless the plan changes.
class Loop::Away {
 public:
  enum class What { kStays, kChanges };
  explicit Away(Loop& loop, What state = What::kStays) : loop_(loop) {
    loop_.is_changing_ |= state == What::kChanges;
    loop_.held_ = {};
  }
  ~Away() {
    loop_.held_ = loop_.parts_.peers.hold();
    loop_.is_changing_ = false;
  }
  Away(const Away&) = delete;
  Away& operator=(const Away&) = delete;

 private:
  Loop& loop_;
};

report::RemainingWork remaining_work(const LoopOptions& options, std::int64_t steps_done, const EpochPosition& here,
                                     bool evaluates) {
  const std::int64_t total = options.total_steps, every = options.checkpoint_every_steps;
  const bool saves_last = options.saves_at_end && (every == 0 || total % every != 0);
  return {.evaluations = evaluates ? remaining_evaluations(options, steps_done, here) : 1,
          .checkpoints = (every > 0 ? multiples(every, steps_done, total) : 0) + (saves_last ? 1 : 0),
          .checkpoint_interval_s = 60 * options.checkpoint_every_minutes};
}

void Loop::run() {
  held_ = parts_.peers.hold();
  try {
    run_and_explain();
  } catch (...) {
    held_ = {};
    throw;
  }
  held_ = {};
}

void Loop::run_and_explain() {
  try {
    run_to_the_end();
  } catch (const InterruptedError&) {
    throw;
  } catch (const DivergedError& error) {
    if (!keeps_records()) throw;
    parts_.records.fault(progress_.steps_done, error);
    parts_.steps.give_up();
    const auto good = rollback_checkpoint();
    const bool resumes_there = good && *good != last_checkpoint_ && set_aside_later_checkpoints(*good);
    throw DivergedError(error.what(), "; ", rollback_advice(good, resumes_there));
  } catch (const Error& error) {
    if (parts_.peers.goes_on_after(error)) throw GroupChanged(error.what());
    if (parts_.peers.must_save_after(error)) rescue();
    parts_.records.fault(progress_.steps_done, error);
    throw;
  }
}

void Loop::run_to_the_end() {
  const std::int64_t best_step = progress_.evaluations.best_step;
  if (options_.keeps_best && best_step > 0) kept().checkpoints().keep_best(best_step);
  if (has_news()) {  // what rank 0 may have been lost before
    if (options_.keeps_best && best_step > 0 && best_step == progress_.steps_done) keep_best();
    record_digests();
  }
  run_until_done_or_stopped();
  report_outside_of_steps();
  finish_observers();
  if (!is_finished() || progress_.evaluation_due) stop_early();
  check_records();
  record_digests(/*at_end=*/true);
  if (wants_last_save()) save();  // again if the disk was full before
  parts_.steps.finish();
  log_best();
  report_outside_of_steps();
  parts_.records.finish(progress_.steps_done);
}

void Loop::log_best() const {
  const EvalHistory& history = progress_.evaluations;
  if (history.since_best == 0) return;
  const auto score = std::ranges::find(options_.scores, options_.train.best_by, &Score::name);
  const bool is_loss = score == options_.scores.end();
  parts_.records.note(
      concat("the best evaluation was after step ", history.best_step, ": ", is_loss ? "loss" : score->title, " ",
             fixed(std::abs(history.best.value()), is_loss ? 4 : 2), !is_loss && score->is_percent ? " %" : ""));
}

void Loop::finish_observers() {
  {
    const Away away(*this);
    for (StepObserver* observer : parts_.observers) observer->finish();
  }
  for (StepObserver* observer : parts_.observers) parts_.records.observed(*observer);
}

// A run's directory may be removed by mistake. Writes to a removed file succeed and keep nothing.
void Loop::check_records() {
  last_look_ = now_ns();
  if (const auto gone = parts_.records.missing()) end_without_records(*gone);
}

void Loop::run_until_done_or_stopped() {
  for (;;) {
    const bool has_waited = now_ns() - last_look_ >= kLookInterval;
    if (has_waited || is_finished() || checkpoint_is_due()) check_records();
    // Saves before the last evaluation, which takes time, so that no training can be lost.
    if (is_finished() && wants_last_save()) save_or_warn();
    if (progress_.evaluation_due) evaluate_and_report();
    if (is_finished() || parts_.steps.is_over(parts_.engine, stop_is_agreed_)) return;
    if (checkpoint_is_due()) save_or_warn();
    if (regroup_is_agreed_) parts_.peers.admit_guests();
    take_next_plan();  // after the checkpoint, so that a resumed run makes the change, too
    train_one_step();
  }
}

void Loop::take_next_plan() {
  const auto plan = [&] {
    const Away away(*this, Away::What::kChanges);
    return parts_.plans.next(progress_.steps_done);
  }();
  const auto freeze = parts_.plans.freeze_record(progress_.steps_done);
  if (!freeze.is_null()) parts_.records.event("freeze", freeze);
  if (!plan) return;
  report_outside_of_steps();
  const Plan before = parts_.engine.plan();
  const Nanoseconds begin = now_ns();
  try {
    const Away away(*this, Away::What::kChanges);
    parts_.engine.apply(*plan);
  } catch (const engine::PlanRefused& refusal) {
    return stay_after(refusal);
  }
  go_on_after(before, begin, freeze);
}

void Loop::go_on_after(const Plan& before, Nanoseconds begin, const nlohmann::ordered_json& freeze) {
  const Plan& plan = parts_.engine.plan();
  parts_.steps.plan_changed(before, plan, progress_.position);
  if (plan.frozen_layers != before.frozen_layers) progress_.noise = {};  // it measured other parameters
  parts_.records.plan_changed({progress_.steps_done, before, plan, to_s(now_ns() - begin), freeze});
}

void Loop::stay_after(const engine::PlanRefused& refusal) {
  parts_.plans.refused(progress_.steps_done);
  log_warning("after step ", progress_.steps_done, ": ", refusal.what());
  parts_.records.event("fault", {{"step", progress_.steps_done}, {"what", refusal.what()}});
}

// Evaluation shows useless weights even if batch-norm keeps the training loss finite.
void Loop::evaluate_and_report() {
  const std::optional<report::EvalRecord> record = evaluate();
  if (!record) return;
  progress_.evaluation_due = false;
  parts_.records.evaluation(*record);
  if (!std::isfinite(record->scores.loss())) {
    throw DivergedError("after step ", progress_.steps_done, ": the loss on the test set is not finite (",
                        fixed(record->scores.loss(), 4), "); ", engine::smaller_updates_advice());
  }
  apply_evaluation(*record);
}

void Loop::apply_evaluation(const report::EvalRecord& record) {
  EvalHistory& history = progress_.evaluations;
  const int falls = history.plateau.falls;
  add(history, record.averaged.value_or(record.scores), progress_.steps_done, options_.train, options_.scores);
  const std::string& best_by = options_.train.best_by;
  if (options_.keeps_best && history.best_step == progress_.steps_done) keep_best();
  if (options_.train.lr_schedule == "plateau" && history.plateau.falls > falls) {
    parts_.records.note(concat("after step ", progress_.steps_done, ": ", best_by, " has not improved in ",
                               counted(options_.train.lr_patience + 1, "evaluation"),
                               "; lowering the learning rate to ",
                               options_.lr.at(progress_.steps_done, history.plateau.falls)));
  }
  if (!ends_early(history, options_.train) || progress_.steps_done == options_.total_steps) return;
  parts_.records.note(concat("the run ends early after step ", progress_.steps_done, " of ", options_.total_steps, ": ",
                             best_by, " has not improved in ", counted(history.since_best, "evaluation"),
                             " since step ", history.best_step, " (train.stop_patience)"));
  parts_.records.event("early_stop", {{"step", progress_.steps_done}, {"best_step", history.best_step}});
}

std::optional<RecordedStep> Loop::next_step(double lr) {
  const std::int64_t number = progress_.steps_done + 1;
  engine::StepRequest request{
      .counts_scores = number % options_.score_every_steps == 0 || number == options_.total_steps,
      .stop = StopSignal::requested(),
      .regroup = parts_.peers.has_guests(),
      .has_events = std::ranges::any_of(parts_.observers, &StepObserver::has_events),
      .takes_digests = options_.digest_layers && digest_is_due(number),
      .take_norms = noise_is_due(number, options_.train.noise_scale_every_steps)};
  for (StepObserver* observer : parts_.observers) observer->before_step(number);
  if (parts_.peers.are_there) parts_.engine.remember_buffers();
  std::optional<Away> away(std::in_place, *this);
  request.before_update = [&] {
    away.reset();
    is_changing_ = true;
  };
  return parts_.steps.next_step(parts_.engine, progress_.steps_done, lr, request);
}

void Loop::train_one_step() {
  report_outside_of_steps();
  const double lr = options_.lr.at(progress_.steps_done, progress_.evaluations.plateau.falls);
  std::optional<RecordedStep> step = next_step(lr);
  if (!step) {
    for (const auto& [name, fields] : parts_.steps.last_events()) parts_.records.event(name, fields);
    return;
  }
  for (StepObserver* observer : parts_.observers) observer->complete(step->spans);
  stop_is_agreed_ = step->stats.stop;
  regroup_is_agreed_ = step->stats.regroup;
  if (!step->stats.skipped) proven_checkpoint_ = last_checkpoint_;  // a skipped step says nothing about the loss

  ++progress_.steps_done;
  progress_.position = data::position_after(step->batch);
  progress_.evaluation_due = evaluation_is_due_after(step->batch);
  const profiler::StepBreakdown breakdown = record_step(*step, step->lr.value_or(lr));
  parts_.engine.forget_buffers();
  is_changing_ = false;  // the step is complete in state and records
  record_digests();
  record_news();
  const SeenStep seen{.number = progress_.steps_done,
                      .spans = step->spans,
                      .stats = step->stats,
                      .breakdown = breakdown,
                      .plan = parts_.engine.plan(),
                      .evaluation_follows = progress_.evaluation_due};
  const Away away(*this);
  for (StepObserver* observer : parts_.observers) observer->after_step(seen);
}

profiler::StepBreakdown Loop::record_step(const RecordedStep& step, double lr) {
  const auto& [batch, stats, spans, lr_of_server, events] = step;
  const report::StepRecord record{
      .step = progress_.steps_done,
      .epoch = batch.epoch,
      .batch = batch.batch,
      .batches = batch.batches,
      .stats = stats,
      .lr = lr,
      .breakdown = profiler::break_down(spans),
      .evaluation_follows = progress_.evaluation_due,
      .noise = take_in(progress_.noise, stats, options_.train.noise_scale_every_steps),
      .remaining = remaining_work(options_, progress_.steps_done, {batch.epoch, batch.batch, batch.batches},
                                  parts_.steps.holds_weights())};
  parts_.records.step(record, step, is_finished());
  if (batch.batch + 1 == batch.batches || is_finished()) report_features();
  return record.breakdown;
}

bool Loop::digest_is_due(std::int64_t step) const {
  return options_.digest_every > 0 && (step % options_.digest_every == 0 || step == options_.total_steps);
}

void Loop::record_digests(bool at_end) {
  const bool is_wanted = at_end ? options_.digest_every > 0 : digest_is_due(progress_.steps_done);
  if (!is_wanted || digested_step_ == progress_.steps_done || !keeps_records() || !parts_.steps.holds_weights()) return;
  digested_step_ = progress_.steps_done;
  storage::CheckpointContents contents{parts_.engine.model_between_steps(),
                                       engine::optimizer_tensors(parts_.engine.composition())};
  set_average_apart(contents);
  nlohmann::ordered_json fields = digests_of(progress_.steps_done, contents);
  if (options_.digest_layers && progress_.steps_done > first_step_ && !at_end)
    fields["layers"] = to_json(parts_.engine.step().last_digests());
  parts_.records.event("digest", fields);
}

void Loop::record_news() {
  if (!has_news()) return;
  const comm::GroupNews news = std::exchange(*options_.news, {});
  for (const comm::Newcomer& newcomer : news.joined) {
    parts_.records.event("joined", {{"step", progress_.steps_done},
                                    {"rank", newcomer.member},
                                    {"host", newcomer.host},
                                    {"wait_ms", to_ms(now_ns() - newcomer.arrived_at)}});
  }
  for (const comm::Loss& loss : news.lost) {
    parts_.records.event("lost", {{"step", progress_.steps_done},
                                  {"rank", loss.member},
                                  {"host", loss.host},
                                  {"cause", loss.cause},
                                  {"detected_ms", loss.silent_ms},
                                  {"next_step_ms", to_ms(now_ns() - loss.lost_at)}});
  }
}

void Loop::report_features() {
  if (!parts_.features || parts_.engine.plan().frozen_layers == 0) return;
  nlohmann::ordered_json fields{{"step", progress_.steps_done}};
  fields.update(parts_.features->fields());
  parts_.records.event("cache", fields);
}

bool Loop::evaluation_is_due_after(const data::Batch& batch) const {
  if (is_finished()) return true;
  if (!parts_.steps.holds_weights()) return false;  // the engine's weights are too old
  const config::TrainConfig& train = options_.train;
  if (train.eval_every_steps > 0) return progress_.steps_done % train.eval_every_steps == 0;
  return batch.batch + 1 == batch.batches && (batch.epoch + 1) % train.eval_every_epochs == 0;
}

std::optional<report::EvalRecord> Loop::evaluate() {
  const Nanoseconds begin = now_ns();
  const SpanScope span(parts_.engine.recorder().process(), Phase::kEvaluation);
  const std::optional<ScoreSums> scores = evaluate_all();
  if (!scores) return std::nullopt;
  report::EvalRecord record{.step = progress_.steps_done, .epoch = progress_.position.epoch, .scores = *scores};
  if (engine::TrainStep& step = parts_.engine.step(); step.has_average()) {
    step.with_average([&] { record.averaged = evaluate_all(/*of_average=*/true); });
    if (!record.averaged) return std::nullopt;
  }
  record.seconds = to_s(now_ns() - begin);
  return record;
}

std::optional<ScoreSums> Loop::evaluate_all(bool of_average) {
  ScoreSums sums;
  const auto eval_data = parts_.open_eval_data();
  const std::unique_ptr<Judge> judge = parts_.make_judge();
  while (const auto batch = eval_data->next()) {
    at::Tensor outputs;
    const engine::EvalStats stats = [&] {
      const Away away(*this, of_average ? Away::What::kChanges : Away::What::kStays);
      engine::TrainStep& step = parts_.engine.step();
      return step.evaluate(as_step_batch(*batch, step.task()), StopSignal::requested(), judge ? &outputs : nullptr);
    }();
    if (judge && outputs.defined()) judge->add(batch->sample_ids, outputs);
    report_outside_of_steps();  // makes room for the next batch's spans
    stop_is_agreed_ = stats.stop;
    if (stop_is_agreed_) return std::nullopt;
    sums += stats.scores;
  }
  if (judge) {
    const std::vector<double> of_all = judge->finish(*parts_.engine.composition().sync);
    sums.sums.insert(sums.sums.end(), of_all.begin(), of_all.end());
  }
  return sums;
}

void Loop::report_outside_of_steps() {
  const StepSpans spans = parts_.engine.recorder().collect(progress_.steps_done, 0, 0);
  for (StepObserver* observer : parts_.observers) observer->outside_of_steps(spans.process);
  parts_.records.outside_of_steps(spans.process);
}

}  // namespace sluice::train
