// Saving, and ends before the last step.
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "engine/divergence.h"
#include "train/run/loop.h"
#include "train/setup/stop_signal.h"

namespace sluice::train {

namespace fs = std::filesystem;

bool Loop::checkpoint_is_due() const {
  if (progress_.steps_done == 0 || is_saved()) return false;
  const bool by_steps =
      options_.checkpoint_every_steps > 0 && progress_.steps_done % options_.checkpoint_every_steps == 0;
  const bool by_time =
      options_.checkpoint_every_minutes > 0 && to_s(now_ns() - last_save_) >= options_.checkpoint_every_minutes * 60.0;
  if (!by_steps && !by_time) return false;
  const bool has_weights = parts_.steps.holds_weights();
  if (!has_weights) parts_.steps.want_weights();
  return has_weights;
}

void Loop::save() {
  const SpanScope span(parts_.engine.recorder().process(), Phase::kCheckpoint);
  write_checkpoint();
}

void Loop::write_checkpoint() {
  const Nanoseconds begin = now_ns();
  try {
    last_checkpoint_ = kept().checkpoints().save(progress_.steps_done, kept().capture(progress_), proven_step());
  } catch (const DivergedError& error) {
    throw DivergedError(error.what(), "; ", engine::smaller_updates_advice());
  }
  parts_.steps.saved(kept().checkpoints().steps());
  saved_step_ = progress_.steps_done;
  last_save_ = now_ns();
  const double seconds = to_s(last_save_ - begin);
  kept().event("checkpoint",
               {{"step", progress_.steps_done}, {"path", last_checkpoint_.string()}, {"save_s", seconds}});
  log_info("checkpoint ", last_checkpoint_.string(), " saved in ", fixed(seconds, 2), " s");
}

void Loop::save_or_warn() {
  const auto go_on = [&](const Error& error) {
    last_save_ = now_ns();
    parts_.records.fault(progress_.steps_done, error);
    log_warning("training continues without this checkpoint: ", error.what());
  };
  try {
    save();
  } catch (const StorageError& error) {
    go_on(error);
  } catch (const OutOfMemoryError& error) {  // no more open files
    go_on(error);
  }
}

void Loop::rescue() noexcept {
  const std::string state = concat("the state after step ", progress_.steps_done);
  try {
    if (progress_.steps_done == first_step_ || (keeps_records() && is_saved())) return;
    if (is_changing_ || !parts_.engine.holds_state())
      return log_warning(
          concat(state, " was not saved: an update was in progress. Resume from the newest checkpoint."));
    if (!keeps_records()) return parts_.peers.save(progress_);
    log_info("lost another process: saving ", state);
    write_checkpoint();
  } catch (const std::exception& error) {
    log_warning(state, " could not be saved: ", error.what());
  }
}

void Loop::stop_early() {
  const auto why = parts_.steps.why_over();
  if (!why) stop_for_signal();
  if (progress_.steps_done > first_step_ && !is_saved()) save();
  const std::string what =
      concat(why->what(), " (after step ", progress_.steps_done, " of ", options_.total_steps, "); ",
             last_checkpoint_.empty() ? "no checkpoint was saved" : concat("checkpoint ", last_checkpoint_.string()));
  if (why->exit_code() != ExitCode::kInterrupted) throw Error(why->exit_code(), what);
  report_outside_of_steps();
  kept().reporter().summary("interrupted", progress_.steps_done);
  throw InterruptedError(what, "; continue with --resume auto");
}

void Loop::stop_for_signal() {
  const bool is_own = StopSignal::requested();
  const bool has_trained = progress_.steps_done > first_step_;
  const std::string stopped =
      concat("stopped ", is_own ? concat("by ", StopSignal::name(), " ") : "", has_trained ? "after step " : "at step ",
             progress_.steps_done, " of ", options_.total_steps,
             is_own ? "" : ", because another process of the run received a signal");
  if (!keeps_records())
    throw InterruptedError(stopped, has_trained ? "; rank 0 saves the checkpoint; continue with --resume auto" : "");
  if (!has_trained && !is_saved()) {  // otherwise the checkpoint would only repeat another run's
    report_outside_of_steps();
    kept().reporter().summary("interrupted", progress_.steps_done);
    throw InterruptedError(stopped, "; nothing was trained, and no checkpoint was saved");
  }
  check_records();
  log_info(is_own ? concat("received ", StopSignal::name()) : "another process of the run received a signal",
           ": saving a checkpoint before stopping (a second signal stops at once)");
  if (!is_saved()) save();
  report_outside_of_steps();
  kept().reporter().summary("interrupted", progress_.steps_done);
  throw InterruptedError(stopped, "; checkpoint ", last_checkpoint_.string(),
                         options_.can_resume ? "; continue with --resume auto"
                                             : "; a new run can start from its model.safetensors (model.weights)");
}

void Loop::keep_best() {
  if (!is_saved()) save_or_warn();
  if (is_saved()) kept().checkpoints().keep_best(progress_.steps_done);
}

std::optional<fs::path> Loop::rollback_checkpoint() const {
  if (!proven_checkpoint_.empty()) return proven_checkpoint_;
  const auto newest = storage::step_of(last_checkpoint_);
  if (!newest) return std::nullopt;
  for (const std::int64_t step : kept().checkpoints().steps()) {
    if (step < *newest) return last_checkpoint_.parent_path() / storage::checkpoint_name(step);
  }
  return std::nullopt;
}

std::string Loop::rollback_advice(const std::optional<fs::path>& good, bool resumes_there) const {
  if (last_checkpoint_.empty()) return "no checkpoint was saved before it";
  const std::string good_one = good ? concat("the last good checkpoint is ", good->string()) : "";
  if (good == last_checkpoint_) return good_one;
  return concat(last_checkpoint_.string(), " holds the weights that gave this loss; ",
                good ? good_one : "there is no earlier checkpoint",
                resumes_there && options_.can_resume ? ", and --resume auto continues from it" : "");
}

// Otherwise --resume auto would take the newest checkpoint, whose weights give the same loss. False if this may happen.
bool Loop::set_aside_later_checkpoints(const fs::path& good) {
  const auto step = storage::step_of(good);
  if (!step || good.parent_path() != last_checkpoint_.parent_path()) return false;
  try {
    kept().checkpoints().set_aside_newer_than(*step);
  } catch (const Error& error) {
    log_warning(error.what());
    return false;
  }
  return true;
}

std::optional<std::int64_t> Loop::proven_step() const {
  return proven_checkpoint_.empty() ? std::nullopt : storage::step_of(proven_checkpoint_);
}

void Loop::end_without_records(const std::filesystem::path& gone) {
  const std::string what =
      concat(gone.string(), " was removed or renamed while the run wrote to it; ", "its records are lost");
  if (kept().reporter().is_replaced() && !kept().checkpoints().has_made_dir())
    throw StorageError(what, "; another directory is in its place, so nothing was saved");
  std::string rescued;
  try {
    if (!parts_.steps.holds_weights()) throw StorageError("the weights are on the server, whose run has ended");
    save();
    rescued = concat("the state after step ", progress_.steps_done,
                     " was saved: ", options_.can_resume ? "continue with --resume " : "", last_checkpoint_.string());
  } catch (const Error& error) {
    rescued = concat("the state after step ", progress_.steps_done, " could not be saved either: ", error.what());
  }
  throw StorageError(what, "; ", rescued);
}

}  // namespace sluice::train
