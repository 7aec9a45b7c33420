#include "train/session.h"

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "train/loop.h"
#include "train/plan_description.h"
#include "train/reporter.h"
#include "train/resume.h"
#include "train/state.h"
#include "train/stop_signal.h"

namespace sluice::train {
namespace {

// A checkpoint to continue from, read and checked.
struct ResumePoint {
  std::string source;
  CheckpointContents contents;
  RunState state;
};

std::optional<ResumePoint> read_resume_point(const ResumeChoice& choice, const config::Config& config) {
  if (!choice.checkpoint) return std::nullopt;
  ResumePoint point{choice.checkpoint->string(), load_checkpoint(*choice.checkpoint), {}};
  point.state = RunState::from_json(point.contents.state, point.source);
  check_resumable(config, point.state, point.source);
  return point;
}

RunDir open_run_dir(const ResumeChoice& choice, const SessionOptions& options) {
  if (choice.run_dir.empty()) return RunDir::create_named("runs", options.config_name);
  if (options.resume == "auto") return {choice.run_dir, RunDirMode::kResumeOrNew};
  return {choice.run_dir, choice.continues_run_dir ? RunDirMode::kResume : RunDirMode::kNew};
}

void restore(Composition& composition, const ResumePoint& point) {
  load_model(composition, point.contents.model, point.source + "/model.safetensors");
  load_optimizer(composition, point.contents.optimizer, point.state.optimizer_steps,
                 point.source + "/optimizer.safetensors");
}

// Parameters to begin with: the checkpoint's, or the configured weights, or those the model was made with.
void load_start(Composition& composition, const config::Config& config, const std::optional<ResumePoint>& resume) {
  if (resume) {
    restore(composition, *resume);
  } else if (!config.model.weights.empty()) {
    load_model(composition, read_safetensors(config.model.weights).tensors, config.model.weights);
  }
}

// Chunks where the configuration leaves them open: by measurement, but by rule where every run must be the same.
int decide_chunks(const Setup& setup, Composition& composition, TrainStep& step, data::Position start) {
  if (setup.config.train.deterministic) {
    log_info(concat("pipeline.chunks = \"auto\" with train.deterministic: ", composition.plan.chunks,
                    ", one per stage, unmeasured"));
    return composition.plan.chunks;
  }
  data::Loader probe(*setup.train_set, train_loader_options(setup), start);
  const ChunkChoice choice = choose_chunks(composition, step, as_micro_batch(*probe.next()));
  log_info(
      concat("pipeline.chunks = \"auto\": ", choice.chunks, " is fastest (step without update: ", choice.why, ")"));
  return choice.chunks;
}

// A run directory's own records are continued where the checkpoint left them; any other run begins its own, and what an
// earlier start left in TensorBoard's files before its first checkpoint is made void.
ReporterStart start_of_records(const RunDir& run_dir, bool continues, const std::optional<ResumePoint>& resume) {
  if (continues) return {resume->state.metrics, resume->state.progress.steps_done};
  ReporterStart start;
  if (run_dir.resumes()) start.resumed_step = 0;
  return start;
}

LoopOptions loop_options(const Setup& setup, const std::optional<ResumePoint>& resume) {
  const config::Config& config = setup.config;
  return {.total_steps = setup.total_steps,
          .eval_every_steps = config.train.eval_every_steps,
          .checkpoint_every_steps = config.checkpoint.every_steps,
          .checkpoint_every_minutes = config.checkpoint.every_minutes,
          .log_every = config.log.every,
          .lr = lr_schedule(setup),
          .resumed_from = resume ? resume->source : std::string{}};
}

void run_loop(const Setup& setup, const std::optional<ResumePoint>& resume, const Composition& composition,
              TrainStep& step, Reporter& reporter, CheckpointStore& checkpoints) {
  const Progress start = resume ? resume->state.progress : Progress{};
  data::Loader train_data(*setup.train_set, train_loader_options(setup), start.position);
  const auto capture = [&](const Progress& progress) {
    const RunState state{.progress = progress,
                         .optimizer_steps = composition.optimizers.front()->steps(),
                         .plan = composition.plan,
                         .metrics = reporter.sync(),
                         .config_toml = config::to_toml(setup.config)};
    return CheckpointContents{model_tensors(composition), optimizer_tensors(composition), state.to_json()};
  };
  const auto open_eval_data = [&] {
    return std::make_unique<data::Loader>(*setup.test_set, eval_loader_options(setup));
  };
  Loop loop({step, *composition.executor, train_data, open_eval_data, reporter, checkpoints, capture},
            loop_options(setup, resume), start);
  loop.run();
}

}  // namespace

void run_training(const config::Config& config, const SessionOptions& options) {
  const Setup setup = make_setup(config);
  ResumeChoice choice = choose_resume(options.resume, options.run_dir, options.config_name);
  const RunDir run_dir = open_run_dir(choice, options);
  // Again, now that the directory is ours: its former owner may have saved or removed checkpoints meanwhile.
  if (choice.continues_run_dir) choice = choose_resume(options.resume, run_dir.path(), options.config_name);
  log_to_file(run_dir.log_file());
  const StopSignal stop_signal;

  std::optional<ResumePoint> resume = read_resume_point(choice, config);
  const bool keeps_plan = resume && plan_can_be_kept(config, resume->state.plan);
  Composition composition = make_composition(setup, keeps_plan ? resume->state.plan : decide_plan(setup));
  load_start(composition, config, resume);
  if (resume) resume->contents = {};  // unmapped: retention may free its disk space
  run_dir.write_config(config::to_toml(config));
  log_info(concat("run directory ", run_dir.path().string()));
  CheckpointStore checkpoints(run_dir.checkpoints_dir(), config.checkpoint.keep);
  const bool continues = resume && choice.continues_run_dir;
  if (continues) checkpoints.remove_newer_than(resume->state.progress.steps_done);

  TrainStep step(composition, step_options(setup));
  const Progress start = resume ? resume->state.progress : Progress{};
  if (!keeps_plan && chunks_are_open(config))
    composition.plan.chunks = decide_chunks(setup, composition, step, start.position);
  const PlanDescription description = describe_plan(setup, composition, /*chunks_are_open=*/false);
  log_lines(description.text);
  Reporter reporter(run_dir, composition.plan, composition.plan.replicas > 1 ? composition.gradient_bytes() : 0,
                    setup.total_steps, config.log.tensorboard, start_of_records(run_dir, continues, resume));
  reporter.plan(description.json);
  if (resume)
    log_info(concat("resumed from ", resume->source, " at step ", start.steps_done, " of ", setup.total_steps));

  run_loop(setup, resume, composition, step, reporter, checkpoints);
  reporter.summary("done", setup.total_steps);
}

}  // namespace sluice::train
