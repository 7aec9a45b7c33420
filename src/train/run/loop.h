// loop: goes through the data step by step: trains, evaluates, reports, saves, goes on with another plan where its
// source has one, and stops when asked to.
// It knows of parallelism only that another number of replicas takes another share of every batch: a step is
// TrainStep::run(), whatever runs behind it. In a run of several processes
// each runs its own loop, and one of them keeps the records.
// Threads: one. Errors: DivergedError names the last good checkpoint (one from which a step had a finite loss; none is
// made of tensors that are not finite); InterruptedError after a signal, when the checkpoint is saved; StorageError
// when the last checkpoint cannot be written (a periodic one is tried again later), and when the run's records are gone
// from the disk. A plan that is refused ends nothing: a warning, and a `fault` in the records.
// If another process of the run is lost, rescue() saves the state of the last whole step before this process ends.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "optim/lr_schedule.h"
#include "profiler/breakdown.h"
#include "report/reporter.h"
#include "storage/checkpoint_store.h"
#include "train/plan/plan_source.h"
#include "train/run/feature_reuse.h"
#include "train/setup/run_state.h"
#include "train/trace/step_observer.h"
#include "train/trace/step_source.h"

namespace sluice::train {

struct LoopOptions {
  std::int64_t total_steps = 0;
  config::TrainConfig train;                // when it evaluates, and what follows from that
  bool keeps_best = false;                  // the checkpoint of the best evaluation
  bool saves_at_end = true;                 // after the last step, where it is not saved yet
  std::int64_t checkpoint_every_steps = 0;  // 0: not by steps
  double checkpoint_every_minutes = 0;      // 0: not by time
  std::int64_t log_every = 10;
  optim::LrSchedule lr;
  std::filesystem::path resumed_from;  // the checkpoint that the run went on from; empty: a new run
  bool is_saved = false;               // that checkpoint is one of this run directory's own
  bool can_resume = true;              // from its own checkpoints, with --resume
};

// The position of a step in its epoch, from 0.
struct EpochPosition {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
  std::int64_t batches = 0;  // of the epoch
};

// What follows the steps that are done, the last of which was here. evaluates: the run has weights to evaluate before
// its end.
[[nodiscard]] report::RemainingWork remaining_work(const LoopOptions& options, std::int64_t steps_done,
                                                   const EpochPosition& here, bool evaluates);

// What a run leaves behind, and what keeps it. By default another process of the run does, and the members are empty.
struct Records {
  report::Reporter* reporter = nullptr;
  storage::CheckpointStore* checkpoints = nullptr;
  std::function<storage::CheckpointContents(const Progress&)> capture = {};  // everything a resume needs
  std::function<void(std::int64_t steps_done)> report_plan = {};             // the engine's, to the reporter
  std::function<Error(const Error&)> explain = {};  // what is behind a failure of communication

  [[nodiscard]] bool are_kept() const { return reporter != nullptr; }
  // Nothing where none are kept.
  void event(const std::string& name, const nlohmann::ordered_json& fields) const {
    if (are_kept()) reporter->event(name, fields);
  }
};

// What a loop needs of a run of several processes. By default there are no others.
struct LoopPeers {
  using Hold = std::unique_lock<std::timed_mutex>;
  // The loop holds it except while it waits for other processes. Any thread that holds it may call rescue().
  std::function<Hold()> hold = [] { return Hold(); };
  // Whether this failure is the loss of another process after which this one saves.
  std::function<bool(const Error&)> must_save_after = [](const Error&) { return false; };
  // Saves in a process that keeps no records.
  std::function<void(const Progress&)> save = {};
  std::string name = {};  // of this process, for the log; empty: it is alone

  [[nodiscard]] bool are_there() const { return !name.empty(); }
};

// What the loop calls; made by run_training().
struct LoopParts {
  engine::Engine& engine;
  StepSource& steps;
  std::function<std::unique_ptr<data::Loader>()> open_eval_data;
  PlanSource plans;
  Records records = {};
  std::shared_ptr<const FeatureReuse> features = nullptr;  // null: nothing is kept of what frozen layers make
  std::vector<StepObserver*> observers = {};
  LoopPeers peers = {};
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
  }

  // Until total_steps are done, or the evaluations end it. At the end it saves, and then evaluates.
  void run();
  [[nodiscard]] std::int64_t steps_done() const { return progress_.steps_done; }
  // Saves the state after the last whole step if it is not saved yet; a failure to do so is a warning. From the thread
  // of run() after a failure, or from another one that holds LoopPeers::hold.
  void rescue() noexcept;

 private:
  // While it lives, another process is waited for: the loop does not hold LoopPeers::hold.
  class Away;

  void run_and_explain();
  void run_to_the_end();
  void run_until_done_or_stopped();
  [[nodiscard]] bool is_finished() const {
    return progress_.steps_done == options_.total_steps || ends_early(progress_.evaluations, options_.train);
  }
  void take_next_plan();
  // freeze: the fields of PlanSource::freeze_record; null where nothing freezes with it.
  void go_on_after(const Plan& before, Nanoseconds begin, const nlohmann::ordered_json& freeze);
  void stay_after(const engine::PlanRefused& refusal);
  [[nodiscard]] std::optional<RecordedStep> next_step(double lr);
  void train_one_step();
  // Gives where its time went.
  profiler::StepBreakdown record_step(const RecordedStep& step, double lr);
  void log_epoch(const report::StepRecord& record);
  [[nodiscard]] std::optional<std::filesystem::path> rollback_checkpoint() const;
  [[nodiscard]] std::string rollback_advice(const std::optional<std::filesystem::path>& good, bool resumes_there) const;
  [[nodiscard]] bool set_aside_later_checkpoints(const std::filesystem::path& good);
  [[nodiscard]] std::optional<std::int64_t> proven_step() const;
  [[nodiscard]] bool evaluation_is_due_after(const data::Batch& batch) const;
  void evaluate_and_report();
  // What follows from an evaluation: the best checkpoint, an early end, a lower rate.
  void apply_evaluation(const report::EvalRecord& record);
  void keep_best();
  void log_best() const;
  // All test samples, each once; nothing when a signal has cut it off.
  [[nodiscard]] std::optional<EvalCounts> count_right(bool of_average = false);
  // The weights, and their average where there is one.
  [[nodiscard]] std::optional<report::EvalRecord> evaluate();
  [[nodiscard]] bool checkpoint_is_due() const;
  [[nodiscard]] bool is_saved() const { return !parts_.records.are_kept() || saved_step_ == progress_.steps_done; }
  [[nodiscard]] bool wants_last_save() const { return options_.saves_at_end && !is_saved(); }
  void report_outside_of_steps();
  // What the feature cache holds, into the records.
  void report_features();
  void report_fault(const Error& error);
  void record_fault(const std::string& what);
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
  bool stop_is_agreed_ = false;
  std::optional<std::int64_t> saved_step_;
  std::filesystem::path last_checkpoint_;
  // The newest whose weights gave a finite loss in the step after it. Retention keeps it: a newer one may be of weights
  // that are finite and past use.
  std::filesystem::path proven_checkpoint_;
  Nanoseconds last_save_ = now_ns();
  Nanoseconds last_look_ = now_ns();  // at the records
  report::StepSums epoch_;            // so far, of a process that keeps no records
  LoopPeers::Hold held_;              // of the thread in run()
  bool is_changing_ = false;          // weights or plan: there is no whole state to save
};

}  // namespace sluice::train
