#include "train/resume_point.h"

#include <filesystem>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "engine/state.h"
#include "train/saved_average.h"
#include "train/starting_weights.h"

namespace sluice::train {
namespace {

// So that the evaluations to come can be compared with those before.
bool evaluates_alike(const Setup& setup, const RunState& state) {
  if (!state.progress.evaluations.best) return true;
  const config::Config saved = config::parse(state.config_toml, "the checkpoint's configuration");
  const bool is_same_data = !state.data || state.data->test == setup.data.test;
  return is_same_data && saved.train.best_by == setup.config.train.best_by;
}

}  // namespace

std::optional<std::filesystem::path> find_start(const ResumeChoice& choice, const SessionOptions& options) {
  const auto found = choice.from.empty() ? std::nullopt : find_checkpoint(choice.from);
  if (!found && !options.resume.empty() && options.resume != "auto") {
    throw ConfigError(concat("--resume ", options.resume,
                             ": there is no checkpoint; give a run directory that has one, one of its "
                             "checkpoints/step-N, or \"auto\", which begins where there is none"));
  }
  return found;
}

std::optional<ResumePoint> read_resume_point(const ResumeChoice& choice, const SessionOptions& options, Setup& setup) {
  if (options.resume.empty()) return std::nullopt;
  const auto found = find_start(choice, options);
  if (!found) {
    const std::filesystem::path log = choice.from / "pushes";
    std::error_code ignored;
    const bool has_log = !choice.from.empty() && std::filesystem::exists(log, ignored);
    log_info(
        concat("--resume auto: there is no checkpoint yet, so ",
               has_log ? concat("the run begins with what the log in ", log.string(), " has") : "a new run begins"));
    return std::nullopt;
  }
  ResumePoint point{found->string(), storage::load_checkpoint(*found), {}};
  point.state = RunState::from_json(point.contents.state, point.source);
  const NewData new_data = options.accept_new_data ? NewData::kAccepted : NewData::kRefused;
  if ((setup.config.replicas.has_server()) == point.state.server.is_null()) {
    throw ConfigError(concat("cannot resume ", point.source, ": it was made with",
                             point.state.server.is_null() ? "out" : "",
                             " a parameter server; begin a new run, with "
                             "model.weights set to its model.safetensors"));
  }
  check_resumable(setup.config, point.state, point.source, new_data);
  point.state.progress = progress_in(setup, point.state, point.source, new_data);
  if (!evaluates_alike(setup, point.state)) {
    log_info("evaluations are of other data or compared by something else than before; the best one is found anew");
    // What was decided by those before stands: the rate stays as low as it has fallen.
    const int falls = point.state.progress.evaluations.plateau.falls;
    point.state.progress.evaluations = {.plateau = {.falls = falls}};
  }
  setup.total_steps = total_steps_after(setup, point.state.progress);
  check_end(setup.total_steps, point.state, point.source);
  return point;
}

bool goes_on_with_pushes(const ResumeChoice& choice, const std::optional<ResumePoint>& resume) {
  const bool is_named = resume && std::filesystem::path(resume->source) == choice.from;
  if (choice.continues_run_dir) return !is_named;
  const std::filesystem::path theirs = choice.from / "pushes";
  if (std::error_code ignored; resume && !is_named && std::filesystem::exists(theirs, ignored))
    log_warning(concat("what the server of that run had taken after ", resume->source, " stays in ", theirs.string(),
                       "; go on in its own directory to use it"));
  return false;
}

void refuse_to_go_on(const config::Config& config, const SessionOptions& options) {
  if (!config.replicas.has_server() || config.ps.clock != "virtual" || options.resume.empty()) return;
  throw ConfigError(concat("--resume ", options.resume,
                           ": a run in virtual time cannot go on from a checkpoint; begin a new one, with "
                           "model.weights set to the checkpoint's model.safetensors"));
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
  return {.total_steps = setup.total_steps,
          .train = config.train,
          .keeps_best = config.checkpoint.best,
          .saves_at_end = config.checkpoint.at_end,
          .checkpoint_every_steps = config.checkpoint.every_steps,
          .checkpoint_every_minutes = config.checkpoint.every_minutes,
          .log_every = config.log.every,
          .lr = lr_schedule(setup),
          .resumed_from = resume ? resume->source : std::string{},
          .is_saved = continues && storage::step_of(resume->source),
          .can_resume = !config.replicas.has_server() || config.ps.clock == "real",
          .profile_level = config.profile.level};
}

void load_start(engine::Composition& composition, const Setup& setup, std::optional<ResumePoint>& resume) {
  const std::string& weights = setup.config.model.weights;
  if (resume) {
    engine::load_model(composition, resume->contents.model, resume->source + "/model.safetensors");
    put_average_back(resume->contents, engine::buffer_tensors(composition));
    engine::load_optimizer(composition, resume->contents.optimizer, resume->state.optimizer_steps,
                           resume->source + "/optimizer.safetensors");
    resume->contents = {};  // unmapped: retention may free its disk space
    if (!weights.empty()) log_info(concat("model.weights is not read: the run goes on from ", resume->source));
  } else if (!weights.empty()) {
    load_starting_weights(composition, setup.model, weights);
  }
}

}  // namespace sluice::train
