// resume_point: reads and checks the checkpoint that a run resumes, and loads its first weights. Errors: ConfigError if
// there is no checkpoint or the run cannot resume it; those of storage/checkpoint.h.
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

[[nodiscard]] ResumeChoice choose_start(const config::Config& config, const TrainRunOptions& options);

[[nodiscard]] Setup make_run_setup(const config::Config& config, const TrainRunOptions& options,
                                   const ResumeChoice& choice);

[[nodiscard]] std::optional<std::filesystem::path> find_start(const ResumeChoice& choice,
                                                              const TrainRunOptions& options);

// The run's learning-rate schedule when it was saved. Requires: the state as read.
[[nodiscard]] optim::LrSchedule saved_lr_schedule(const Setup& setup, const RunState& state, const std::string& source);

// Warns, with both rates, if the schedule now differs from the saved one: a longer run stretches "cosine", "linear",
// "polynomial" and "onecycle". steps_done: of the schedule.
void warn_of_other_rates(const optim::LrSchedule& saved, const optim::LrSchedule& now, std::int64_t steps_done,
                         int falls);

// Also sets the run's total steps and its constants (of the checkpoint, the configured weights or fresh ones).
[[nodiscard]] std::optional<ResumePoint> read_resume_point(const ResumeChoice& choice, const TrainRunOptions& options,
                                                           Setup& setup);

// Whether to recover its server's pushes after the checkpoint: not for a named checkpoint or in another directory.
[[nodiscard]] bool resumes_with_pushes(const ResumeChoice& choice, const std::optional<ResumePoint>& resume);

// A run directory's own records continue after the checkpoint; any other run starts new ones. TensorBoard entries of an
// earlier start without a checkpoint become void.
[[nodiscard]] report::ReporterStart start_of_records(const storage::RunDir& run_dir, bool continues,
                                                     const std::optional<ResumePoint>& resume);

// continues: records and checkpoints of the run directory continue.
[[nodiscard]] LoopOptions loop_options(const Setup& setup, const std::optional<ResumePoint>& resume, bool continues);

void refuse_resume(const config::Config& config, const TrainRunOptions& options);

// Loads the checkpoint's parameters or the configured weights, or keeps fresh ones. Releases the checkpoint's tensors.
void load_start(engine::Composition& composition, const Setup& setup, std::optional<ResumePoint>& resume);

}  // namespace sluice::train
