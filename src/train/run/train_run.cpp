#include "train/run/train_run.h"

#include <optional>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/memory.h"
#include "report/metrics_writer.h"
#include "report/reporter.h"
#include "report/run_totals.h"
#include "storage/weights_files.h"
#include "train/plan/composition.h"
#include "train/plan/freeze_plans.h"
#include "train/plan/plan_description.h"
#include "train/plan/run_facts.h"
#include "train/plan/step_predictor.h"
#include "train/run/carried.h"
#include "train/run/records.h"
#include "train/run/resume_choice.h"
#include "train/run/resume_point.h"
#include "train/run/training.h"
#include "train/serve/finished_notice.h"
#include "train/serve/served_workers.h"
#include "train/serve/shard_run.h"
#include "train/serve/virtual_workers.h"
#include "train/serve/worker.h"
#include "train/setup/machine_fit.h"
#include "train/setup/noise_watch.h"
#include "train/setup/run_state.h"
#include "train/setup/same_start.h"
#include "train/setup/server_settings.h"
#include "train/setup/stop_signal.h"
#include "train/trace/torch_steps.h"

namespace sluice::train {
namespace {

storage::RunDir open_run_dir(const ResumeChoice& choice, const TrainRunOptions& options) {
  if (choice.run_dir.empty()) return storage::RunDir::create_named("runs", options.config_file.stem().string());
  if (options.resume == "auto") return {choice.run_dir, storage::RunDirMode::kResumeOrNew};
  return {choice.run_dir, choice.continues_run_dir ? storage::RunDirMode::kResume : storage::RunDirMode::kNew};
}

RunPlans plan_run_from(const Setup& setup, const std::optional<ResumePoint>& resume) {
  const RunState* const saved = resume ? &resume->state : nullptr;
  return freezes(setup.config) ? plan_freezing_run(setup, saved) : plan_run(setup, saved);
}

void broadcast(Peers& peers, const StartMessage& message) {
  if (!peers.is_alone()) (void)comm::broadcast_text(peers.communicator(), message.to_text(), /*root=*/0);
}

void log_plans(const Training& training) {
  const std::vector<PlanChange>& changes = training.plans.changes;
  log_table(describe_plan(training.setup, training.engine.composition(), /*chunks_are_open=*/false).text);
  if (const std::string coming = describe_changes(changes, training.progress().steps_done); !coming.empty())
    log_table(coming);
  warn_of_late_changes(changes, training.setup.total_steps);
  warn_of_noise(training.setup, training.engine.plan());
}

struct RunFiles {
  const storage::RunDir& dir;
  storage::CheckpointStore& checkpoints;
  bool continue_here = false;  // the directory's own records and checkpoints continue
};

nlohmann::ordered_json with_run_dir(const storage::RunDir& run_dir, const nlohmann::ordered_json& summary) {
  nlohmann::ordered_json fields{{"run_dir", run_dir.path().string()}};
  fields.update(summary);
  return fields;
}

void refuse_to_cut(const storage::CheckpointStore& checkpoints, std::int64_t step, const std::string& source) {
  const std::vector<std::int64_t> steps = checkpoints.steps();
  if (steps.empty() || steps.front() <= step) return;
  throw ConfigError(source, " is at the last step, and its run has trained on to step ", steps.front(),
                    "; raise train.steps to train from ", source, " again, or evaluate it with sluice eval");
}

std::optional<nlohmann::ordered_json> summary_of_finished_run(const storage::RunDir& run_dir, std::int64_t total_steps,
                                                              bool has_ended_early) {
  const auto summary = report::last_event(run_dir.metrics_file(), "summary");
  if (!summary || summary->value("outcome", "") != "done" || summary->value("steps", -1) != total_steps)
    return std::nullopt;
  log_info("the run in ", run_dir.path().string(), " is complete after ", counted(total_steps, "step"),
           has_ended_early
               ? " and ended early, because evaluations no longer improved; raise train.stop_patience to train on"
               : "; raise train.steps or train.epochs to train on");
  nlohmann::ordered_json fields = *summary;
  fields.erase("event");
  fields.erase("time_s");
  return with_run_dir(run_dir, fields);
}

// The result of a run that has no step left; nullopt if there is work to do.
std::optional<nlohmann::ordered_json> result_of_finished(Peers& peers, const Setup& setup,
                                                         const TrainRunOptions& options, const RunFiles& files,
                                                         const std::optional<ResumePoint>& resume) {
  if (!files.continue_here || resume->state.progress.steps_done != setup.total_steps) return std::nullopt;
  refuse_to_cut(files.checkpoints, setup.total_steps, resume->source);
  const bool has_ended_early = ends_early(resume->state.progress.evaluations, setup.config.train);
  auto summary = summary_of_finished_run(files.dir, setup.total_steps, has_ended_early);
  if (!summary) return std::nullopt;
  broadcast(peers, {.trains = false, .state = {.progress = resume->state.progress}});
  warn_of_no_steps(options.traced, setup.total_steps);
  notify_late_workers(setup, options.server, options.launch.version);
  return summary;
}

StartMessage start_message(const Setup& setup, const TrainRunOptions& options, const RunFiles& files,
                           const RunPlans& plans, const std::optional<ResumePoint>& resume) {
  StartMessage message{.tries_chunks = plans.tries_chunks,
                       .state = {.plan = plans.now, .changes = plans.changes, .norms = plans.norms}};
  if (resume) message.state.progress = resume->state.progress;
  message.constants = setup.constants;
  message.traced = {options.traced, torch_steps(setup, options.traced, message.state.progress.steps_done + 1)};
  message.run_dir_id = id_of(files.dir);
  if (!setup.task->counts_every_step()) message.score_every_steps = setup.config.log.every;
  message.state.config_toml = config::to_toml(setup.config);
  message.state.data = setup.data;
  return message;
}

std::unique_ptr<UpdateSource> make_update_source(const Setup& setup, const TrainRunOptions& options,
                                                 const RunFiles& files, const std::optional<ResumePoint>& resume,
                                                 bool takes_pushes) {
  if (!setup.config.replicas.has_server()) return nullptr;
  if (options.server.part != ServerRole::Part::kServer) return make_virtual_workers(setup);
  return make_served_workers(setup, options.server, options.launch.version, {files.dir.pushes_dir(), takes_pushes},
                             resume ? &resume->state : nullptr);
}

engine::EngineOptions engine_options_of(Peers& peers, const Setup& setup, const std::shared_ptr<FeatureReuse>& features,
                                        UpdateSource* updates) {
  engine::EngineOptions options = engine_options(setup, peers.processes(), features,
                                                 updates != nullptr ? updates->sync_factory() : engine::make_sync);
  if (updates != nullptr) options.compose.optimizer = updates->optimizer();
  return options;
}

// Changes the run directory. Before, a run that is stopped or lacks a server leaves it as it was.
void begin_files(const Training& training, const RunFiles& files, const std::filesystem::path& config_file) {
  const std::int64_t step = training.progress().steps_done;
  const bool has_records = files.dir.resumes() && step < training.setup.total_steps;
  if (has_records && training.updates != nullptr) training.updates->begin(training.engine);
  files.dir.write_config(concat(origin_line(config_file), "\n\n", training.start.state.config_toml));
  if (files.continue_here) files.checkpoints.set_aside_newer_than(step);
}

KeptRecords keep_records(const Training& training, storage::CheckpointStore& checkpoints, report::Reporter& reporter) {
  const auto report_plan = [&, predictor = StepPredictor::known(training.setup)](std::int64_t steps_done) {
    const engine::Composition& composition = training.engine.composition();
    report::RunFacts facts = facts_of(training.setup, composition);
    facts.by_pushes = training.updates != nullptr;
    // Predictions assume devices of equal speed.
    const bool is_changed = training.setup.config.pipeline.replans() && steps_done > training.progress().steps_done;
    const bool is_predictable = predictor && composition.plan.shares.empty() && !is_changed;
    if (is_predictable) facts.costs = predictor->advice_costs(composition.plan);
    reporter.plan(std::move(facts), describe_plan(training.setup, composition, /*chunks_are_open=*/false).json,
                  steps_done);
    if (is_predictable) report_prediction(predictor, composition.plan, reporter);
  };
  const auto capture = [&](const Progress& progress) { return contents_at(training, progress, reporter.sync()); };
  const auto explain = [&](const Error& error) {
    return training.peers.is_alone() ? error : training.peers.explain(error);
  };
  return KeptRecords({reporter, checkpoints, training.setup.config.log.every, capture, report_plan, explain});
}

void record_start(const Training& training, const std::optional<ResumePoint>& resume, bool goes_on,
                  const KeptRecords& records) {
  const std::int64_t step = training.progress().steps_done;
  records.report_plan(step);
  if (training.updates != nullptr) records.event("ps", training.updates->fields());
  if (!resume || goes_on) return;
  records.event("resume", {{"step", step}, {"checkpoint", resume->source}});
  records.note(concat("resumed from ", resume->source, " at step ", step, " of ", training.setup.total_steps));
}

std::optional<ResumePoint> begin_in_run_dir(Peers& peers, Setup& setup, const TrainRunOptions& options,
                                            const ResumeChoice& choice, std::optional<storage::RunDir>& opened) {
  // Reads another run's checkpoint before it makes a directory. Reads its own after it has locked the directory,
  // because the former owner may change checkpoints until then.
  std::optional<ResumePoint> resume;
  if (!choice.continues_run_dir) resume = read_resume_point(choice, options, setup);
  const storage::RunDir& run_dir = opened.emplace(open_run_dir(choice, options));
  peers.before_training().on_discard(run_dir.discarding());
  log_to_file(run_dir.log_file());
  if (choice.continues_run_dir) resume = read_resume_point(choice, options, setup);
  return resume;
}

nlohmann::ordered_json lead(Peers& peers, Setup& setup, const TrainRunOptions& options, const ResumeChoice& choice,
                            Carried& carried) {
  const bool goes_on = carried.state.has_value();
  const bool goes_on_here = goes_on && carried.run_dir;
  std::optional<ResumePoint> resume =
      goes_on ? begin_in_group(options, carried) : begin_in_run_dir(peers, setup, options, choice, carried.run_dir);
  const storage::RunDir& run_dir = *carried.run_dir;
  storage::CheckpointStore checkpoints(run_dir.checkpoints_dir(), setup.config.checkpoint.keep,
                                       [&] { return run_dir.presence() == storage::RunDir::Presence::kReplaced; });
  const RunFiles files{run_dir, checkpoints,
                       goes_on ? goes_on_here || run_dir.resumes() : resume && choice.continues_run_dir};

  if (const auto result = goes_on ? std::nullopt : result_of_finished(peers, setup, options, files, resume))
    return *result;
  const bool is_done = resume && resume->state.progress.steps_done == setup.total_steps;
  // The last evaluation may still be due; it needs no other process.
  const auto notice =
      is_done ? notify_late_workers_in_background(setup, options.server, options.launch.version) : std::jthread();

  const bool takes_pushes = resumes_with_pushes(choice, resume);
  RunPlans plans = plan_run_from(setup, resume);
  add_costs(setup, carried.costs, plans);
  const StartMessage start = start_message(setup, options, files, plans, resume);
  broadcast(peers, start);

  const auto features = make_feature_reuse(setup);
  const auto updates = make_update_source(setup, options, files, resume, takes_pushes);
  engine::Engine engine(plans.now, engine_options_of(peers, setup, features, updates.get()));
  carried.run_dir_id = start.run_dir_id;
  const Training training{peers, setup, plans, start, features, updates.get(), engine, run_dir.path(), carried.state};
  nlohmann::ordered_json summary;
  peers.together([&] {
    check_feasible(engine, plans.changes, training.progress().steps_done);
    load_start(engine.composition(), setup, resume);
    log_info("run directory ", run_dir.path().string());
    synchronize_start(training);
    for (const device::Device device : facts_of(setup, engine.composition()).devices)
      device::reset_peak_memory(device);  // excludes the trial steps
    log_plans(training);
    peers.before_training().training_begins();
    begin_files(training, files, options.config_file);
    report::Reporter reporter(run_dir, sinks_of(setup), start_of_records(run_dir, files.continue_here, resume));
    KeptRecords records = keep_records(training, checkpoints, reporter);
    record_start(training, resume, goes_on, records);
    LoopOptions loop = loop_options(setup, resume, files.continue_here);
    loop.news = &carried.news;
    if (goes_on) {
      catch_up(run_dir, carried, reporter);
      go_on_in(run_dir, checkpoints, training.progress().steps_done, loop);
    }
    run_loop(training, std::move(loop), records,
             [&](std::int64_t done) { summary = with_run_dir(run_dir, reporter.summary("done", done)); });
  });
  return summary;
}

nlohmann::ordered_json follow(Peers& peers, Setup& setup, const TrainRunOptions& options, Carried& carried) {
  const auto start = StartMessage::from_text(comm::broadcast_text(peers.communicator(), {}, /*root=*/0));
  const ProcessRank& process = peers.process();
  warn_of_own_trace(setup, !options.traced.is_empty(), options.traced == start.traced.own);
  setup.total_steps = total_steps_after(setup, start.state.progress);
  nlohmann::ordered_json summary{{"rank", process.rank}, {"outcome", "done"}, {"steps", setup.total_steps}};
  if (!start.trains) {
    log_info("the run is complete after ", counted(setup.total_steps, "step"), "; rank 0 logs how to train on");
    return summary;
  }

  setup.take(start.constants);
  const auto features = make_feature_reuse(setup);
  engine::Engine engine(start.state.plan, engine_options(setup, peers.processes(), features));
  RunPlans plans{start.state.plan, start.tries_chunks, start.state.changes, start.state.norms};
  carried.run_dir_id = start.run_dir_id;
  const Training training{peers, setup, plans, start, features, nullptr, engine, {}, carried.state};
  peers.together([&] {
    check_feasible(engine, plans.changes, training.progress().steps_done);
    synchronize_start(training);
    peers.before_training().training_begins();
    EpochLog records(concat("rank ", process.rank, " of ", process.processes), setup.total_steps,
                     setup.config.replicas.elastic ? &carried.last : nullptr);
    LoopOptions loop = loop_options(setup, {}, /*continues=*/false);
    loop.keeps_best = false;
    loop.news = &carried.news;
    run_loop(training, loop, records, [&](std::int64_t done) { summary["steps"] = done; });
  });
  return summary;
}

Setup make_checked_setup(const config::Config& config, const TrainRunOptions& options, const ResumeChoice& choice) {
  Setup setup = make_run_setup(config, options, choice);
  setup.servers = addresses_of(options.server);
  check_changes(setup);
  check_freezing(setup);
  check_feature_reuse(setup);
  check_policy(setup);
  return setup;
}

// Finds problems of this process alone, before it connects to the others.
Setup prepare(const config::Config& config, const TrainRunOptions& options, const ResumeChoice& choice, bool rank_0) {
  Setup setup = make_checked_setup(config, options, choice);
  refuse_resume(config, options);
  check_trace(!options.traced.is_empty(), config);
  if (!rank_0 || options.launch.world.is_single()) return setup;
  if (!choice.continues_run_dir) (void)find_start(choice, options);
  if (options.resume.empty() && !config.model.weights.empty())
    (void)storage::read_weights(storage::resolve_weights(config.model.weights));
  return setup;
}

// Trains as one of the processes that make steps together, or as the server of a parameter server's workers.
nlohmann::ordered_json train(const config::Config& config, const TrainRunOptions& options) {
  Setup setup;
  ResumeChoice choice;
  // Lives until the other processes have ended. While they wait for each other, a signal ends each directly.
  std::optional<StopSignal> stop_signal;
  const auto afterwards =
      options.launch.end_process ? StopSignal::Afterwards::kIgnored : StopSignal::Afterwards::kAsBefore;
  if (options.launch.world.is_single()) stop_signal.emplace(afterwards);
  Peers peers(options.launch, config, [&](bool rank_0) {
    if (rank_0) choice = choose_start(config, options);
    setup = prepare(config, options, choice, rank_0);
  });
  if (!stop_signal) stop_signal.emplace(afterwards);
  const bool joined = peers.is_guest();
  if (joined) settle_as_guest(peers, setup);
  return peers.run([&] {
    if (!joined) {
      settle_together(peers, setup);
      peers.open_door(data_agreement(setup));
    }
    check_changes(setup, refuse_too_many_threads);  // now that the other processes of this machine are known
    for (Carried carried{.news = peers.take_news()};;) {
      try {
        return peers.keeps_records() ? lead(peers, setup, options, choice, carried)
                                     : follow(peers, setup, options, carried);
      } catch (const PeerError& error) {
        if (!peers.changes_group(error)) throw;
        log_debug(error.what());
      }
      form_next_group(peers, setup, options, carried);
      settle_process(setup, peers.process());
    }
  });
}

// The options of this role. Workers of a server come and go: the server waits for no process and ends with none.
TrainRunOptions options_as(const ServerRole& role, TrainRunOptions options) {
  const comm::World& world = options.launch.world;
  if (role.part != ServerRole::Part::kNone)
    options.launch.world = {.local_rank = world.local_rank, .local_size = world.local_size};
  options.server = role;
  return options;
}

void add_changes(const std::vector<PlanChange>& changes, std::int64_t steps_done, PlanDescription& plan) {
  for (const PlanChange& change : changes) {
    plan.json["changes"].push_back({{"after", change.after}, {"plan", plan_json(change.plan)}});
    if (change.freeze) plan.json["changes"].back()["freeze"] = freeze_fields(change.after, change);
  }
  if (const std::string coming = describe_changes(changes, steps_done); !coming.empty())
    plan.text += concat("\n", coming);
}

}  // namespace

nlohmann::ordered_json run_training(const config::Config& wanted, const TrainRunOptions& options) {
  log_how_started(options.launch.world);
  const auto [role, config] = assign_role(wanted, options.launch.world, options.serving);
  switch (role.part) {
    case ServerRole::Part::kWorker: return run_worker(config, role, options.launch, {options.run_dir, options.traced});
    case ServerRole::Part::kShards:
      return run_shard_server(config, role, {options.launch, options.run_dir, options.resume});
    case ServerRole::Part::kServer: check_can_listen(role); break;
    case ServerRole::Part::kNone: break;
  }
  return train(config, options_as(role, options));
}

PlanDescription describe_training(const config::Config& wanted, const TrainRunOptions& requested) {
  const auto [role, config] = assign_role(wanted, requested.launch.world, requested.serving);
  const TrainRunOptions options = options_as(role, requested);
  const ResumeChoice choice = choose_start(config, options);
  Setup setup = make_checked_setup(config, options, choice);
  warn_of_unusual_settings(setup);
  identify_data(setup);
  std::optional<ResumePoint> resume = read_resume_point(choice, options, setup);
  const RunPlans plans = plan_run_from(setup, resume);
  engine::Engine engine(plans.now, engine_options(setup));
  load_start(engine.composition(), setup, resume);
  const std::int64_t step = resume ? resume->state.progress.steps_done : 0;
  check_feasible(engine, plans.changes, step);
  warn_of_late_changes(plans.changes, setup.total_steps);
  PlanDescription plan =
      describe_plan(setup, engine.composition(), plans.tries_chunks && !setup.config.train.deterministic);
  add_changes(plans.changes, step, plan);
  if (resume) {
    plan.json["resume"] = {{"checkpoint", resume->source}, {"step", step}, {"total_steps", setup.total_steps}};
    plan.text += concat("\nresumes from ", resume->source, " at step ", step, " of ", setup.total_steps);
  }
  return plan;
}

}  // namespace sluice::train
