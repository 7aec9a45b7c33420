#include "train/session.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/loop.h"
#include "train/reporter.h"
#include "train/resume.h"
#include "train/state.h"
#include "train/stop_signal.h"

namespace sluice::train {
namespace {

using nlohmann::ordered_json;

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

// The plan of a resumed run where it still fits, else one from the configuration and measurements.
Plan decide_plan(const Setup& setup, const std::optional<ResumePoint>& resume) {
  if (resume && plan_can_be_kept(setup.config, resume->state.plan)) return resume->state.plan;
  if (!partition_is_measured(setup)) return make_plan(setup, {});
  return make_plan(setup, measure_layers(setup));
}

// Chunks by measurement, unless they are configured, or must be the same in every run (deterministic).
void decide_chunks(const Setup& setup, Composition& composition, TrainStep& step, data::Loader& loader) {
  const bool open = !setup.config.pipeline.chunks && setup.config.train.micro_batch == 0;
  if (!open) return;
  if (setup.config.train.deterministic) {
    log_info(concat("pipeline.chunks = \"auto\" with train.deterministic: ", composition.plan.chunks,
                    ", one per stage, without measuring"));
    return;
  }
  const ChunkChoice choice = choose_chunks(composition, step, as_micro_batch(*loader.next()));
  composition.plan.chunks = choice.chunks;
  log_info(
      concat("pipeline.chunks = \"auto\": ", choice.chunks, " is fastest (step without update: ", choice.why, ")"));
}

void log_lines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) log_info(line);
}

// A run directory's own records are continued where the checkpoint left them; any other run begins its own.
ReporterStart start_of_records(const ResumeChoice& choice, const std::optional<ResumePoint>& resume) {
  if (!resume || !choice.continues_run_dir) return {};
  return {resume->state.metrics, resume->state.progress.steps_done};
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

}  // namespace

void run_training(const config::Config& config, const SessionOptions& options) {
  const Setup setup = make_setup(config);
  const ResumeChoice choice = choose_resume(options.resume, options.run_dir, options.config_name);
  const std::optional<ResumePoint> resume = read_resume_point(choice, config);
  const Plan plan = decide_plan(setup, resume);
  Composition composition = make_composition(setup, plan);
  load_start(composition, config, resume);

  const StopSignal stop_signal;
  const RunDir run_dir = open_run_dir(choice, options);
  log_to_file(run_dir.log_file());
  run_dir.write_config(config::to_toml(config));
  log_info(concat("run directory ", run_dir.path().string()));
  CheckpointStore checkpoints(run_dir.checkpoints_dir(), config.checkpoint.keep);
  if (resume && choice.continues_run_dir) checkpoints.remove_newer_than(resume->state.progress.steps_done);

  TrainStep step(composition, step_options(setup));
  const Progress start = resume ? resume->state.progress : Progress{};
  data::Loader train_data(*setup.train_set, train_loader_options(setup), start.position);
  const bool keeps_plan = resume && plan_can_be_kept(config, resume->state.plan);
  if (!keeps_plan) {
    data::Loader probe(*setup.train_set, train_loader_options(setup), start.position);
    decide_chunks(setup, composition, step, probe);
  }

  const PlanDescription description = describe_plan(setup, composition, /*chunks_are_open=*/false);
  log_lines(description.text);
  Reporter reporter(run_dir, composition.plan, plan.replicas > 1 ? composition.gradient_bytes() : 0, setup.total_steps,
                    config.log.tensorboard, start_of_records(choice, resume));
  reporter.plan(description.json);
  if (resume)
    log_info(concat("resumed from ", resume->source, " at step ", start.steps_done, " of ", setup.total_steps));

  const auto capture = [&](const Progress& progress) {
    const RunState state{.progress = progress,
                         .optimizer_steps = composition.optimizers.front()->steps(),
                         .plan = composition.plan,
                         .metrics = reporter.sync(),
                         .config_toml = config::to_toml(config)};
    return CheckpointContents{model_tensors(composition), optimizer_tensors(composition), state.to_json()};
  };
  const auto open_eval_data = [&] {
    return std::make_unique<data::Loader>(*setup.test_set, eval_loader_options(setup));
  };
  Loop loop({step, *composition.executor, train_data, open_eval_data, reporter, checkpoints, capture},
            loop_options(setup, resume), start);
  loop.run();
  reporter.summary("done", setup.total_steps);
}

PlanDescription describe_plan(const Setup& setup, const Composition& composition, bool chunks_are_open) {
  const Plan& plan = composition.plan;
  ordered_json stages = ordered_json::array();
  std::ostringstream text;
  text << setup.model.name << " (" << composition.parameter_count() << " parameters) on "
       << setup.train_set->info().name << ": " << setup.train_set->size() << " training and " << setup.test_set->size()
       << " test samples, " << setup.batches_per_epoch << " batches an epoch, " << setup.total_steps << " steps\n"
       << plan.stages() << (plan.stages() == 1 ? " stage" : " stages") << " x " << plan.replicas
       << (plan.replicas == 1 ? " replica" : " local replicas") << ", schedule " << plan.schedule << ", chunks "
       << (chunks_are_open ? "chosen by measurement at the start" : std::to_string(plan.chunks)) << ", global batch "
       << plan.global_batch << " (" << (plan.global_batch + plan.replicas - 1) / plan.replicas << " a replica), "
       << setup.cpu_threads << " threads a CPU device\n"
       << std::left << std::setw(7) << "stage" << std::setw(28) << "layers" << std::right << std::setw(12)
       << "parameters" << std::setw(12) << "bytes"
       << "  devices";
  for (int s = 0; s < plan.stages(); ++s) {
    const pipeline::Stage& stage = composition.executor->stage(ReplicaId{0}, StageId{s});
    std::vector<std::string> layers, devices;
    for (const auto& layer : stage.layers()) layers.push_back(layer->name());
    for (int r = 0; r < plan.replicas; ++r) devices.push_back(device::to_string(setup.devices[r * plan.stages() + s]));
    std::int64_t parameters = 0;
    for (const auto& slot : stage.parameters().slots()) parameters += slot.numel;
    const std::uint64_t bytes = stage.parameters().values().nbytes();
    stages.push_back(
        {{"stage", s}, {"layers", layers}, {"parameters", parameters}, {"bytes", bytes}, {"devices", devices}});
    const std::string span =
        layers.size() == 1 ? layers.front() : concat(layers.front(), " .. ", layers.back(), " (", layers.size(), ")");
    text << "\n"
         << std::left << std::setw(7) << s << std::setw(28) << span << std::right << std::setw(12) << parameters
         << std::setw(12) << bytes << "  " << join(devices, " ");
  }
  ordered_json json{{"model", setup.model.name},
                    {"data", setup.train_set->info().name},
                    {"parameters", composition.parameter_count()},
                    {"stages", plan.stages()},
                    {"replicas", plan.replicas},
                    {"schedule", plan.schedule},
                    {"chunks", chunks_are_open ? ordered_json("auto") : ordered_json(plan.chunks)},
                    {"global_batch", plan.global_batch},
                    {"cpu_threads", setup.cpu_threads},
                    {"batches_per_epoch", setup.batches_per_epoch},
                    {"steps", setup.total_steps},
                    {"partition", plan.partition.layers_per_stage},
                    {"stage_list", stages}};
  return {std::move(json), std::move(text).str()};
}

}  // namespace sluice::train
