// loop: trains step by step, evaluates, reports, saves, changes plans, and stops when asked to, in every process.
// Threads: one. Errors: DivergedError names the last good checkpoint, from which a step had a finite loss.
// InterruptedError after a signal, once the checkpoint is saved. StorageError if the last checkpoint cannot be written
// (a periodic one is tried again) or the run's records are gone. A refused plan gives a warning and a `fault` record.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/membership.h"
#include "core/error.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "optim/lr_schedule.h"
#include "profiler/breakdown.h"
#include "train/plan/plan_changes.h"
#include "train/run/feature_reuse.h"
#include "train/run/records.h"
#include "train/setup/judge.h"
#include "train/trace/step_source.h"

namespace sluice::train {

struct LoopOptions {
  std::int64_t total_steps = 0;
  config::TrainConfig train;
  Scores scores = {};                  // of the task
  std::int64_t score_every_steps = 1;  // the same in every process
  std::int64_t digest_every = 0;       // steps; the same in every process; 0: no digests
  bool digest_layers = false;
  bool keeps_best = false;  // keep the best evaluation's checkpoint; requires kept records
  bool saves_at_end = true;
  std::int64_t checkpoint_every_steps = 0;  // 0: not by steps
  double checkpoint_every_minutes = 0;      // 0: not by time
  optim::LrSchedule lr;
  std::filesystem::path resumed_from;  // checkpoint that the run resumed; empty: a new run
  bool is_saved = false;               // resumed_from is in this run directory
  bool can_resume = true;              // from its own checkpoints, with --resume
  comm::GroupNews* news = nullptr;     // of the group, before this loop; cleared once it is in the records
  std::optional<std::int64_t> digested_step = std::nullopt;  // the last one with a digest in the records, if known
};

struct EpochPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
  std::int64_t batches = 0;
};

// Work after `steps_done` steps, the last of them at `here`. evaluates: there are weights to evaluate before the end.
[[nodiscard]] report::RemainingWork remaining_work(const LoopOptions& options, std::int64_t steps_done,
                                                   const EpochPosition& here, bool evaluates);

// Connection of the loop to the other processes. By default there are none.
struct LoopPeers {
  using Hold = std::unique_lock<std::timed_mutex>;
  // The loop holds it except while it waits for other processes. A thread that holds it may call rescue().
  std::function<Hold()> hold = [] { return Hold(); };
  // True if this process must save after this failure: the loss of another process.
  std::function<bool(const Error&)> must_save_after = [](const Error&) { return false; };
  // True if a failure changes the group of processes, which then go on (GroupChanged).
  std::function<bool(const Error&)> goes_on_after = [](const Error&) { return false; };
  std::function<bool()> has_guests = [] { return false; };  // true in one process
  std::function<void()> admit_guests = [] {};               // throws GroupChanged in all processes
  std::function<void(const Progress&)> save = {};           // in a process without records
  bool are_there = false;
};

struct LoopParts {
  engine::Engine& engine;
  StepSource& steps;
  std::function<std::unique_ptr<data::Loader>()> open_eval_data;
  PlanSource plans;
  Records& records;
  std::shared_ptr<const FeatureReuse> features = nullptr;  // null: outputs of frozen layers are not kept
  std::vector<StepObserver*> observers = {};
  LoopPeers peers = {};
  std::function<std::unique_ptr<Judge>()> make_judge = [] { return nullptr; };  // for an evaluation
};

class Loop {
 public:
  Loop(LoopParts parts, LoopOptions options, Progress start)
      : parts_(std::move(parts)),
        options_(std::move(options)),
        progress_(start),
        first_step_(start.steps_done),
        last_checkpoint_(options_.resumed_from) {
    if (options_.is_saved) saved_step_ = start.steps_done;
    digested_step_ = options_.digested_step;
  }

  void run();
  [[nodiscard]] std::int64_t steps_done() const { return progress_.steps_done; }
  // After the last whole step; nullopt if the state of the engine is not that of this step.
  [[nodiscard]] std::optional<Progress> whole_progress() const {
    return is_changing_ || !parts_.engine.holds_state() ? std::nullopt : std::optional(progress_);
  }
  // Saves the last whole step's state unless saved; a failure gives a warning. Threads: run()'s, or a holder of `hold`.
  void rescue() noexcept;

 private:
  class Away;

  void run_and_explain();
  void run_to_the_end();
  void run_until_done_or_stopped();
  [[nodiscard]] bool is_finished() const {
    return progress_.steps_done == options_.total_steps || ends_early(progress_.evaluations, options_.train);
  }
  void take_next_plan();
  void go_on_after(const Plan& before, Nanoseconds begin, const nlohmann::ordered_json& freeze);
  void stay_after(const engine::PlanRefused& refusal);
  [[nodiscard]] std::optional<RecordedStep> next_step(double lr);
  void train_one_step();
  profiler::StepBreakdown record_step(const RecordedStep& step, double lr);
  [[nodiscard]] std::optional<std::filesystem::path> rollback_checkpoint() const;
  [[nodiscard]] std::string rollback_advice(const std::optional<std::filesystem::path>& good, bool resumes_there) const;
  [[nodiscard]] bool set_aside_later_checkpoints(const std::filesystem::path& good);
  [[nodiscard]] std::optional<std::int64_t> proven_step() const;
  [[nodiscard]] bool evaluation_is_due_after(const data::Batch& batch) const;
  void evaluate_and_report();
  void apply_evaluation(const report::EvalRecord& record);
  void keep_best();
  void log_best() const;
  // Evaluates each test sample once; nullopt after a signal.
  [[nodiscard]] std::optional<ScoreSums> evaluate_all(bool of_average = false);
  [[nodiscard]] std::optional<report::EvalRecord> evaluate();
  [[nodiscard]] bool checkpoint_is_due() const;
  [[nodiscard]] bool keeps_records() const { return parts_.records.kept() != nullptr; }
  [[nodiscard]] const KeptRecords& kept() const { return *parts_.records.kept(); }
  [[nodiscard]] bool is_saved() const { return !keeps_records() || saved_step_ == progress_.steps_done; }
  [[nodiscard]] bool wants_last_save() const { return options_.saves_at_end && !is_saved(); }
  void report_outside_of_steps();
  void report_features();
  [[nodiscard]] bool digest_is_due(std::int64_t step) const;
  // at_end: of a run that ends early, if the last step has none.
  void record_digests(bool at_end = false);
  [[nodiscard]] bool has_news() const { return options_.news != nullptr && !options_.news->is_empty(); }
  void record_news();
  void check_records();
  [[noreturn]] void end_without_records(const std::filesystem::path& gone);
  void save();
  void write_checkpoint();
  void save_or_warn();
  void finish_observers();
  [[noreturn]] void stop_early();
  [[noreturn]] void stop_for_signal();

  LoopParts parts_;
  LoopOptions options_;
  Progress progress_;
  std::int64_t first_step_;  // done when this loop began
  bool stop_is_agreed_ = false, regroup_is_agreed_ = false;
  std::optional<std::int64_t> saved_step_, digested_step_;
  std::filesystem::path last_checkpoint_;
  // The newest checkpoint with a finite loss in the step after it. Retention keeps it, because a newer one may have
  // finite but useless weights.
  std::filesystem::path proven_checkpoint_;
  Nanoseconds last_save_ = now_ns();
  Nanoseconds last_look_ = now_ns();  // check of the records
  LoopPeers::Hold held_;
  bool is_changing_ = false;  // weights or plan change: no whole state can be saved
};

}  // namespace sluice::train
