// resume_point: the checkpoint that a run goes on from, read and checked against its configuration, and what a model
// begins with: that checkpoint, configured weights, or those it was made with.
// Not here: which checkpoint a run directory has (resume.h). Errors: ConfigError where there is none, or the run cannot
// go on from it; those of storage/checkpoint.h.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/compose.h"
#include "optim/lr_schedule.h"
#include "report/reporter.h"
#include "storage/checkpoint.h"
#include "storage/run_dir.h"
#include "train/run/loop.h"
#include "train/run/resume_choice.h"
#include "train/run/train_run.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {

struct ResumePoint {
  std::string source;
  storage::CheckpointContents contents;
  RunState state;
};

// choose_resume() with what the user asked for.
[[nodiscard]] ResumeChoice choose_start(const config::Config& config, const TrainRunOptions& options);

// A schedule file is that of the checkpoint which the run goes on from.
[[nodiscard]] Setup make_run_setup(const config::Config& config, const TrainRunOptions& options,
                                   const ResumeChoice& choice);

// The checkpoint to continue from, not read yet.
[[nodiscard]] std::optional<std::filesystem::path> find_start(const ResumeChoice& choice,
                                                              const TrainRunOptions& options);

// The learning-rate schedule that a run had when it was saved. Requires: the state as it was read.
[[nodiscard]] optim::LrSchedule saved_lr_schedule(const Setup& setup, const RunState& state, const std::string& source);

// Warns, with both rates, if the schedule of a run that goes on has other rates than the one that it was saved under: a
// longer one stretches "cosine", "linear", "polynomial" and "onecycle". steps_done: of the schedule.
void warn_of_other_rates(const optim::LrSchedule& saved, const optim::LrSchedule& now, std::int64_t steps_done,
                         int falls);

// Settles how many steps the run has, and its constants: those of the checkpoint, of the configured weights, or of
// fresh ones.
[[nodiscard]] std::optional<ResumePoint> read_resume_point(const ResumeChoice& choice, const TrainRunOptions& options,
                                                           Setup& setup);

// Whether it goes on with what its parameter server had taken after the checkpoint, too: not where it goes back to a
// checkpoint that was named, nor in another directory, which is said.
[[nodiscard]] bool resumes_with_pushes(const ResumeChoice& choice, const std::optional<ResumePoint>& resume);

// A run directory's own records are continued where the checkpoint left them; any other run begins its own, and what an
// earlier start left in TensorBoard's files before its first checkpoint is made void.
[[nodiscard]] report::ReporterStart start_of_records(const storage::RunDir& run_dir, bool continues,
                                                     const std::optional<ResumePoint>& resume);

// continues: the run directory whose records and checkpoints are continued.
[[nodiscard]] LoopOptions loop_options(const Setup& setup, const std::optional<ResumePoint>& resume, bool continues);

// Where a run of this kind can never go on.
void refuse_resume(const config::Config& config, const TrainRunOptions& options);

// Parameters to begin with: the checkpoint's, or the configured weights, or those the model was made with. What was
// read of the checkpoint's tensors is given up.
void load_start(engine::Composition& composition, const Setup& setup, std::optional<ResumePoint>& resume);

}  // namespace sluice::train
