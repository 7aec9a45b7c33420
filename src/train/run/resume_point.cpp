#include "train/run/resume_point.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "data/sampler.h"
#include "engine/state.h"
#include "storage/weights_files.h"
#include "train/run/saved_average.h"
#include "train/setup/peers.h"
#include "train/setup/run_state.h"
#include "train/setup/schedule_file.h"
#include "train/setup/server_settings.h"
#include "train/setup/starting_weights.h"
#include "train/setup/task_options.h"

namespace sluice::train {
namespace {

// True if future evaluations can be compared with the saved ones.
bool evaluates_the_same(const Setup& setup, const RunState& state) {
  if (!state.progress.evaluations.best) return true;
  const config::Config saved = config::parse(state.config_toml, "the checkpoint's configuration");
  const bool is_same_data = !state.data || state.data->test == setup.data.test;
  return is_same_data && saved.train.best_by == setup.config.train.best_by;
}

std::int64_t schedule_step(const Setup& setup, const RunState& state) {
  const bool by_examples = setup.config.replicas.has_server() && setup.config.ps.lr_by == "examples";
  if (!by_examples) return state.progress.steps_done;
  return state.server.value("examples", std::int64_t{0}) / samples_of_update(setup);
}

Constants starting_constants(Setup& setup) {
  if (setup.config.model.weights.empty()) return constants_of_model(setup.model);
  setup.weights_path = storage::resolve_weights(setup.config.model.weights);
  const std::filesystem::path& weights = setup.weights_path;
  check_tokens_of_weights(weights, setup.config, setup.model, setup.train_set->info());
  return constants_of_weights(weights, setup.config, setup.model);
}

}  // namespace

optim::LrSchedule saved_lr_schedule(const Setup& setup, const RunState& state, const std::string& source) {
  Setup was = setup;
  was.config = config::parse(state.config_toml, concat(source, "/state.json config"));
  if (state.data) {
    const std::int64_t samples = std::max<std::int64_t>(state.data->train.samples, 1);
    was.global_batch = std::min(config::step_batch(was.config), samples);
    count_epoch(was, samples);
  }
  was.total_steps = planned_steps(was.config.train, was.batches_per_epoch, state.progress);
  return lr_schedule(was);
}

void warn_of_other_rates(const optim::LrSchedule& saved, const optim::LrSchedule& now, std::int64_t steps_done,
                         int falls) {
  if (steps_done == 0 || steps_done >= now.total_steps) return;
  const double last = saved.at(steps_done - 1, falls);
  const auto is_off = [&](const optim::LrSchedule& other) {
    return std::abs(other.at(steps_done - 1, falls) - last) > 1e-6 * last;
  };
  if (!is_off(now)) return;
  optim::LrSchedule as_long = now;
  as_long.total_steps = saved.total_steps;
  const bool is_stretched = !is_off(as_long);
  log_warning(
      "the learning rate changes from ", last, " in step ", steps_done, " to ", now.at(steps_done, falls), " in step ",
      steps_done + 1, ": ",
      is_stretched
          ? concat("train.lr_schedule = \"", now.kind, "\" ended at step ", saved.total_steps, " and now ends at step ",
                   now.total_steps)
          : std::string("the learning-rate settings differ from the checkpoint's; restore them to keep the rate"),
      is_stretched ? concat("; to keep the old rate, set train.lr_schedule = \"constant\" and train.lr = ", last,
                            ", and name this run in --resume, because auto accepts only a run with the same settings")
                   : std::string{});
}

ResumeChoice choose_start(const config::Config& config, const TrainRunOptions& options) {
  return choose_resume(options.resume, options.run_dir, options.config_file, config,
                       options.accept_new_data ? NewData::kAccepted : NewData::kRefused);
}

Setup make_run_setup(const config::Config& config, const TrainRunOptions& options, const ResumeChoice& choice) {
  const ProcessRank process = process_rank(options.launch.world);
  return make_setup(config, process, SetupFor::kRun, kept_schedule(config, choice.from));
}

std::optional<std::filesystem::path> find_start(const ResumeChoice& choice, const TrainRunOptions& options) {
  const auto found = choice.from.empty() ? std::nullopt : find_checkpoint(choice.from);
  if (!found && !options.resume.empty() && options.resume != "auto") {
    throw ConfigError("--resume ", options.resume,
                      ": no checkpoint found; name a run directory that has one, one of its checkpoints/step-N, or "
                      "\"auto\", which starts a new run if there is none");
  }
  return found;
}

namespace {

std::optional<ResumePoint> read_checkpoint(const ResumeChoice& choice, const TrainRunOptions& options, Setup& setup) {
  if (options.resume.empty()) return std::nullopt;
  const auto found = find_start(choice, options);
  if (!found) {
    const std::filesystem::path log = choice.from / "pushes";
    std::error_code ignored;
    const bool has_log = !choice.from.empty() && std::filesystem::exists(log, ignored);
    log_info("--resume auto: ",
             choice.from.empty() ? "no run with this configuration has a checkpoint" : "there is no checkpoint yet",
             ", so ", has_log ? concat("the run starts from the log in ", log.string()) : "starting a new run");
    return std::nullopt;
  }
  ResumePoint point{found->string(), storage::load_checkpoint(*found), {}};
  point.state = RunState::from_json(point.contents.state, point.source);
  const NewData new_data = options.accept_new_data ? NewData::kAccepted : NewData::kRefused;
  if ((setup.config.replicas.has_server()) == point.state.server.is_null()) {
    throw ConfigError("cannot resume ", point.source, ": it was written with",
                      point.state.server.is_null() ? "out" : "",
                      " a parameter server; start a new run with model.weights set to its model.safetensors");
  }
  check_resumable(setup.config, point.state, point.source, new_data);
  warn_of_other_arithmetic(setup, point.state, point.source);
  const optim::LrSchedule saved_rates = saved_lr_schedule(setup, point.state, point.source);
  point.state.progress = progress_in(setup, point.state, point.source, new_data);
  if (!evaluates_the_same(setup, point.state)) {
    log_info("the test data or train.best_by has changed; the search for the best evaluation starts again");
    // The learning rate stays as low as it has fallen.
    const int falls = point.state.progress.evaluations.plateau.falls;
    point.state.progress.evaluations = {.plateau = {.falls = falls}};
  }
  setup.total_steps = total_steps_after(setup, point.state.progress);
  check_end(setup.total_steps, point.state, point.source);
  warn_of_other_rates(saved_rates, lr_schedule(setup), schedule_step(setup, point.state),
                      point.state.progress.evaluations.plateau.falls);
  return point;
}

}  // namespace

std::optional<ResumePoint> read_resume_point(const ResumeChoice& choice, const TrainRunOptions& options, Setup& setup) {
  std::optional<ResumePoint> point = read_checkpoint(choice, options, setup);
  const Constants constants =
      point ? saved_constants(point->contents.state, setup.model, point->source) : starting_constants(setup);
  if (point) check_model_file(constants, setup.model, point->source);
  setup.take(constants);
  return point;
}

bool resumes_with_pushes(const ResumeChoice& choice, const std::optional<ResumePoint>& resume) {
  const bool is_named = resume && std::filesystem::path(resume->source) == choice.from;
  if (choice.continues_run_dir) return !is_named;
  const std::filesystem::path theirs = choice.from / "pushes";
  if (std::error_code ignored; resume && !is_named && std::filesystem::exists(theirs, ignored))
    log_warning("the updates of that run's server after ", resume->source, " stay in ", theirs.string(),
                "; to use them, resume in the run's own directory");
  return false;
}

void refuse_resume(const config::Config& config, const TrainRunOptions& options) {
  if (!config.replicas.has_server() || config.ps.clock != "virtual" || options.resume.empty()) return;
  throw ConfigError("--resume ", options.resume,
                    ": a run in virtual time cannot resume; start a new run with model.weights set to the checkpoint's "
                    "model.safetensors");
}

report::ReporterStart start_of_records(const storage::RunDir& run_dir, bool continues,
                                       const std::optional<ResumePoint>& resume) {
  if (continues) {
    const Progress& progress = resume->state.progress;
    return {resume->state.metrics, progress.steps_done + (progress.evaluation_due ? 0 : 1)};
  }
  report::ReporterStart start;
  if (run_dir.resumes()) start.first_step = 0;
  return start;
}

LoopOptions loop_options(const Setup& setup, const std::optional<ResumePoint>& resume, bool continues) {
  const config::Config& config = setup.config;
  config::TrainConfig train = config.train;
  train.best_by = best_by(train, setup.task->scores());
  return {.total_steps = setup.total_steps,
          .train = std::move(train),
          .scores = setup.task->scores(),
          .digest_every = config.log.digest_every,
          .digest_layers = config.log.digest_layers,
          .keeps_best = config.checkpoint.best,
          .saves_at_end = config.checkpoint.at_end,
          .checkpoint_every_steps = config.checkpoint.every_steps,
          .checkpoint_every_minutes = config.checkpoint.every_minutes,
          .lr = lr_schedule(setup),
          .resumed_from = resume ? resume->source : std::string{},
          .is_saved = continues && storage::step_of(resume->source),
          .can_resume = !config.replicas.has_server() || config.ps.clock == "real"};
}

void load_start(engine::Composition& composition, const Setup& setup, std::optional<ResumePoint>& resume) {
  if (resume) {
    engine::load_model(composition, resume->contents.model, resume->source + "/model.safetensors");
    put_average_back(resume->contents, engine::buffer_tensors(composition));
    engine::load_optimizer(composition, resume->contents.optimizer, resume->state.optimizer_steps,
                           resume->source + "/optimizer.safetensors", resume->state.updates);
    resume->contents = {};  // unmaps the files, so that retention can free their disk space
    if (!setup.config.model.weights.empty())
      log_info("model.weights is not read: the run resumes from ", resume->source);
  } else if (!setup.weights_path.empty()) {
    load_starting_weights(composition, setup.model, setup.weights_path, setup.config.model.lora_weights);
  }
}

}  // namespace sluice::train
