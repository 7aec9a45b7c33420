#include "train/run/train_run.h"

#include <optional>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/memory.h"
#include "engine/same_state.h"
#include "engine/state.h"
#include "report/reporter.h"
#include "report/run_totals.h"
#include "storage/weights_files.h"
#include "train/plan/choose_chunks.h"
#include "train/plan/composition.h"
#include "train/plan/freeze_plans.h"
#include "train/plan/freeze_watch.h"
#include "train/plan/plan_changes.h"
#include "train/plan/plan_description.h"
#include "train/plan/run_facts.h"
#include "train/plan/step_predictor.h"
#include "train/run/feature_reuse.h"
#include "train/run/finished_run.h"
#include "train/run/local_steps.h"
#include "train/run/loop.h"
#include "train/run/resume_choice.h"
#include "train/run/resume_point.h"
#include "train/run/saved_average.h"
#include "train/run/sink_choice.h"
#include "train/run/start_message.h"
#include "train/run/survivor.h"
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
#include "train/trace/observers.h"

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

// A model on its devices and the rest of a run. Exists in every process.
struct Training {
  Peers& peers;
  const Setup& setup;
  engine::Engine& engine;
  RunPlans& plans;
  Progress start;
  std::shared_ptr<FeatureReuse> features;  // null: no outputs of frozen layers are kept
  UpdateSource* updates = nullptr;         // of a parameter server; may be null
  TracedSteps traced = {};
  std::filesystem::path run_dir = {};     // only in a process that keeps records
  const StartMessage* message = nullptr;  // rank 0's, in the other processes
};

RunState state_at(const Training& training, const Progress& progress, const report::MetricsPosition& metrics) {
  const auto& [peers, setup, engine, plans, start, features, updates, traced, run_dir, message] = training;
  return {.progress = progress,
          .optimizer_steps = engine.composition().optimizers.front()->steps(),
          .updates = engine::update_counts(engine.composition()),
          .plan = engine.plan(),
          .changes = plans.changes,
          .norms = plans.norms,
          .processes = setup.process.processes,
          .server = updates != nullptr ? updates->state() : nlohmann::json(),
          .metrics = metrics,
          .config_toml = message == nullptr ? config::to_toml(setup.config) : message->state.config_toml,
          .data = message == nullptr ? setup.data : message->state.data};
}

storage::CheckpointContents contents_at(const Training& training, const Progress& progress,
                                        const report::MetricsPosition& metrics) {
  storage::CheckpointContents contents{training.engine.model_between_steps(),
                                       engine::optimizer_tensors(training.engine.composition()),
                                       state_at(training, progress, metrics).to_json()};
  put_constants(training.setup.constants, contents);
  set_average_apart(contents);
  return contents;
}

std::int64_t run_loop(const Training& training, const LoopOptions& options, const Records& records) {
  Peers& peers = training.peers;
  const Setup& setup = training.setup;
  engine::Engine& engine = training.engine;
  const auto open_train_data = [&](data::Position position) {
    return std::make_unique<data::Loader>(
        *setup.train_set, with_features(train_loader_options(setup, engine.plan().replicas), training.features),
        position);
  };
  std::optional<LocalSteps> own_steps;
  if (training.updates == nullptr)
    own_steps.emplace(open_train_data, training.features != nullptr, training.start.position);
  const auto open_eval_data = [&] {
    return std::make_unique<data::Loader>(
        *setup.test_set, with_features(eval_loader_options(setup, engine.plan().replicas), training.features));
  };
  std::optional<FreezeWatch> watch;
  if (!is_known_beforehand(policy_of(setup))) watch.emplace(peers, setup, engine, training.plans, training.start);
  const PlanSource source = watch ? watch->source() : source_of(training.plans.changes);
  const bool serves = training.updates != nullptr && !setup.servers.empty();
  const TracePart part = serves ? part_of_server(setup) : part_of_process(setup);
  Observers observers = make_observers(
      {setup, peers.is_alone() ? nullptr : &peers.communicator(), engine, training.updates == nullptr},
      traces_of_run(training.traced.own, part, training.run_dir), training.traced.torch, training.run_dir);
  LoopPeers others = loop_peers(peers, [&](const Progress& progress) {
    save_for_rank_0(training.message->run_dir_id, progress.steps_done,
                    [&](const auto& metrics) { return contents_at(training, progress, metrics); });
  });
  Loop loop({.engine = engine,
             .steps = own_steps ? static_cast<StepSource&>(*own_steps) : *training.updates,
             .open_eval_data = open_eval_data,
             .plans = source,
             .records = records,
             .features = training.features,
             .observers = observers.all(),
             .peers = std::move(others)},
            options, training.start);
  run_traced(
      peers, observers.trace, [&] { loop.run(); }, rescue_before_end(loop, peers.process().rank));
  if (peers.is_alone()) return loop.steps_done();
  const nlohmann::ordered_json of_all = observers.times.of_all(peers.communicator());
  records.event("ranks", of_all);
  engine::check_same_state(engine.composition(), "at the end");
  if (records.are_kept()) log_info("all ", peers.process().processes, " processes ended with bit-identical parameters");
  return loop.steps_done();
}

struct RunFiles {
  const storage::RunDir& dir;
  storage::CheckpointStore& checkpoints;
  std::string config;
  bool continues = false;  // the directory's own records
  ServerRole server = {};
  std::string version = {};
  bool takes_pushes = false;  // recovers the server's pushes after the checkpoint
  StepRange traced = {};
};

std::unique_ptr<UpdateSource> make_update_source(const Setup& setup, const RunFiles& files, const RunState* saved) {
  if (!setup.config.replicas.has_server()) return nullptr;
  if (files.server.part == ServerRole::Part::kServer)
    return make_served_workers(setup, files.server, files.version, {files.dir.pushes_dir(), files.takes_pushes}, saved);
  return make_virtual_workers(setup);
}

void synchronize_start(const Training& training) {
  if (!training.peers.is_alone()) engine::hand_out_state(training.engine.composition());
  if (training.plans.tries_chunks) decide_chunks(training.setup, training.engine, training.start.position);
}

void report_plans(const Training& training) {
  const auto& [peers, setup, engine, plans, start, features, updates, traced, run_dir, message] = training;
  log_table(describe_plan(setup, engine.composition(), /*chunks_are_open=*/false).text);
  if (const std::string coming = describe_changes(plans.changes, start.steps_done); !coming.empty()) log_table(coming);
  warn_of_late_changes(plans.changes, setup.total_steps);
  warn_of_noise(setup, engine.plan());
}

nlohmann::ordered_json train_composed(const Training& training, const RunFiles& files,
                                      std::optional<ResumePoint>& resume) {
  Peers& peers = training.peers;
  const Setup& setup = training.setup;
  const Progress& start = training.start;
  engine::Composition& composition = training.engine.composition();
  check_feasible(training.engine, training.plans.changes, start.steps_done);
  load_start(composition, setup, resume);
  log_info("run directory ", files.dir.path().string());
  synchronize_start(training);
  // Excludes the trial steps.
  for (const device::Device device : facts_of(setup, composition).devices) device::reset_peak_memory(device);
  report_plans(training);
  peers.before_training().training_begins();
  // From here on the directory changes. Before, a run that is stopped or lacks a server leaves it as it was.
  const bool has_records = files.dir.resumes() && start.steps_done < setup.total_steps;
  if (has_records && training.updates != nullptr) training.updates->begin(training.engine);
  files.dir.write_config(files.config);
  if (files.continues) files.checkpoints.set_aside_newer_than(start.steps_done);
  report::Reporter reporter(files.dir, sinks_of(setup.config), start_of_records(files.dir, files.continues, resume));
  const auto report_plan = [&, predictor = StepPredictor::known(setup)](std::int64_t steps_done) {
    report::RunFacts facts = facts_of(setup, composition);
    facts.by_pushes = training.updates != nullptr;
    if (predictor) facts.costs = predictor->advice_costs(composition.plan);
    reporter.plan(std::move(facts), describe_plan(setup, composition, /*chunks_are_open=*/false).json, steps_done);
    report_prediction(predictor, composition.plan, reporter);
  };
  report_plan(start.steps_done);
  if (training.updates != nullptr) reporter.event("ps", training.updates->fields());
  if (resume) {
    reporter.event("resume", {{"step", start.steps_done}, {"checkpoint", resume->source}});
    log_info("resumed from ", resume->source, " at step ", start.steps_done, " of ", setup.total_steps);
  }
  const auto capture = [&](const Progress& progress) { return contents_at(training, progress, reporter.sync()); };
  Records records{&reporter, &files.checkpoints, capture, report_plan};
  if (!peers.is_alone()) records.explain = [&](const Error& error) { return peers.explain(error); };
  const std::int64_t done = run_loop(training, loop_options(setup, resume, files.continues), records);
  return with_run_dir(files.dir, reporter.summary("done", done));
}

nlohmann::ordered_json train(Peers& peers, const Setup& setup, const RunFiles& files,
                             std::optional<ResumePoint>& resume) {
  RunPlans plans = plan_run_from(setup, resume);
  StartMessage message{.tries_chunks = plans.tries_chunks,
                       .state = {.plan = plans.now, .changes = plans.changes, .norms = plans.norms}};
  if (resume) message.state.progress = resume->state.progress;
  message.constants = setup.constants;
  message.traced = {files.traced, torch_steps(setup, files.traced, message.state.progress.steps_done + 1)};
  message.run_dir_id = id_of(files.dir);
  message.state.config_toml = config::to_toml(setup.config);
  message.state.data = setup.data;
  broadcast(peers, message);
  const auto features = make_feature_reuse(setup);
  const std::unique_ptr<UpdateSource> updates = make_update_source(setup, files, resume ? &resume->state : nullptr);
  engine::EngineOptions composed =
      engine_options(setup, peers.processes(), features, updates ? updates->sync_factory() : engine::make_sync);
  if (updates) composed.compose.optimizer = updates->optimizer();
  engine::Engine engine(plans.now, std::move(composed));
  const Training training{peers,    setup,         engine,         plans,           message.state.progress,
                          features, updates.get(), message.traced, files.dir.path()};
  nlohmann::ordered_json summary;
  peers.together([&] { summary = train_composed(training, files, resume); });
  return summary;
}

nlohmann::ordered_json lead(Peers& peers, Setup& setup, const TrainRunOptions& options, const ResumeChoice& choice) {
  // Reads another run's checkpoint before it makes a directory. Reads its own after it has locked the directory,
  // because the former owner may change checkpoints until then.
  std::optional<ResumePoint> resume;
  if (!choice.continues_run_dir) resume = read_resume_point(choice, options, setup);
  const storage::RunDir run_dir = open_run_dir(choice, options);
  peers.before_training().on_discard(run_dir.discarding());
  log_to_file(run_dir.log_file());
  if (choice.continues_run_dir) resume = read_resume_point(choice, options, setup);

  storage::CheckpointStore checkpoints(run_dir.checkpoints_dir(), setup.config.checkpoint.keep,
                                       [&] { return run_dir.presence() == storage::RunDir::Presence::kReplaced; });
  const bool continues = resume && choice.continues_run_dir;
  const bool is_done = resume && resume->state.progress.steps_done == setup.total_steps;
  if (continues && is_done) {
    refuse_to_cut(checkpoints, setup.total_steps, resume->source);
    const bool has_ended_early = ends_early(resume->state.progress.evaluations, setup.config.train);
    if (auto summary = summary_of_finished_run(run_dir, setup.total_steps, has_ended_early)) {
      broadcast(peers, {.trains = false, .state = {.progress = resume->state.progress}});
      warn_of_no_steps(options.traced, setup.total_steps);
      notify_late_workers(setup, options.server, options.launch.version);
      return *summary;
    }
  }
  // The last evaluation may still be due; it needs no other process.
  const auto notice =
      is_done ? notify_late_workers_in_background(setup, options.server, options.launch.version) : std::jthread();
  const std::string config = concat(origin_line(options.config_file), "\n\n", config::to_toml(setup.config));
  const bool takes_pushes = resumes_with_pushes(choice, resume);
  return train(
      peers, setup,
      {run_dir, checkpoints, config, continues, options.server, options.launch.version, takes_pushes, options.traced},
      resume);
}

nlohmann::ordered_json follow(Peers& peers, Setup& setup, const TrainRunOptions& options) {
  StartMessage message = StartMessage::from_text(comm::broadcast_text(peers.communicator(), {}, /*root=*/0));
  warn_of_own_trace(setup, !options.traced.is_empty(), options.traced == message.traced.own);
  setup.total_steps = total_steps_after(setup, message.state.progress);
  nlohmann::ordered_json summary{{"rank", peers.process().rank}, {"outcome", "done"}, {"steps", setup.total_steps}};
  if (!message.trains) return summary;
  setup.take(message.constants);
  const auto features = make_feature_reuse(setup);
  engine::Engine engine(message.state.plan, engine_options(setup, peers.processes(), features));
  RunPlans plans{message.state.plan, message.tries_chunks, message.state.changes, message.state.norms};
  const Training training{peers,    setup,   engine,         plans, message.state.progress,
                          features, nullptr, message.traced, {},    &message};
  peers.together([&] {
    check_feasible(engine, training.plans.changes, training.start.steps_done);
    synchronize_start(training);
    peers.before_training().training_begins();
    summary["steps"] = run_loop(training, loop_options(setup, {}, /*continues=*/false), Records{});
  });
  return summary;
}

// Finds problems of this process alone, before it connects to the others.
Setup prepare(const config::Config& config, const TrainRunOptions& options, const ResumeChoice& choice) {
  const comm::World& world = options.launch.world;
  Setup setup = make_run_setup(config, options, choice);
  setup.servers = addresses_of(options.server);
  check_changes(setup);
  check_freezing(setup);
  check_feature_reuse(setup);
  check_policy(setup);
  refuse_resume(config, options);
  check_trace(!options.traced.is_empty(), config);
  if (world.rank != 0 || world.is_single()) return setup;
  if (!choice.continues_run_dir) (void)find_start(choice, options);
  if (options.resume.empty() && !config.model.weights.empty())
    (void)storage::read_weights(storage::resolve_weights(config.model.weights));
  return setup;
}

// Workers of a server come and go: no process waits for them or ends because of them.
comm::World alone(const comm::World& world) { return {.local_rank = world.local_rank, .local_size = world.local_size}; }

}  // namespace

nlohmann::ordered_json run_training(const config::Config& wanted, const TrainRunOptions& requested) {
  log_how_started(requested.launch.world);
  const auto [role, config] = assign_role(wanted, requested.launch.world, requested.serving);
  if (role.part == ServerRole::Part::kWorker)
    return run_worker(config, role, requested.launch, {requested.run_dir, requested.traced});
  if (role.part == ServerRole::Part::kShards)
    return run_shard_server(config, role, {requested.launch, requested.run_dir, requested.resume});
  TrainRunOptions options = requested;
  options.server = role;
  if (role.part == ServerRole::Part::kServer) {
    options.launch.world = alone(requested.launch.world);
    check_can_listen(role);
  }
  Setup setup;
  ResumeChoice choice;
  // Lives until the other processes have ended. While they wait for each other at the start, a signal ends each
  // directly.
  std::optional<StopSignal> stop_signal;
  const auto afterwards =
      options.launch.end_process ? StopSignal::Afterwards::kIgnored : StopSignal::Afterwards::kAsBefore;
  if (options.launch.world.is_single()) stop_signal.emplace(afterwards);
  Peers peers(options.launch, config, [&] {
    if (options.launch.world.rank == 0) choice = choose_start(config, options);
    setup = prepare(config, options, choice);
  });
  if (!stop_signal) stop_signal.emplace(afterwards);
  return peers.run([&] {
    settle_together(peers, setup);
    check_changes(setup, refuse_too_many_threads);  // now that the other processes of this machine are known
    return peers.keeps_records() ? lead(peers, setup, options, choice) : follow(peers, setup, options);
  });
}

PlanDescription describe_training(const config::Config& wanted, const TrainRunOptions& requested) {
  const auto [role, config] = assign_role(wanted, requested.launch.world, requested.serving);
  TrainRunOptions options = requested;
  if (role.part != ServerRole::Part::kNone) options.launch.world = alone(requested.launch.world);
  const ResumeChoice choice = choose_start(config, options);
  Setup setup = make_run_setup(config, options, choice);
  setup.servers = addresses_of(role);
  warn_of_unusual_settings(setup);
  check_changes(setup);
  check_freezing(setup);
  check_feature_reuse(setup);
  check_policy(setup);
  identify_data(setup);
  std::optional<ResumePoint> resume = read_resume_point(choice, options, setup);
  const RunPlans plans = plan_run_from(setup, resume);
  engine::Engine engine(plans.now, engine_options(setup));
  engine::Composition& composition = engine.composition();
  load_start(composition, setup, resume);
  PlanDescription plan = describe_plan(setup, composition, plans.tries_chunks);
  const std::int64_t step = resume ? resume->state.progress.steps_done : 0;
  check_feasible(engine, plans.changes, step);
  warn_of_late_changes(plans.changes, setup.total_steps);
  for (const PlanChange& change : plans.changes) {
    plan.json["changes"].push_back({{"after", change.after}, {"plan", plan_json(change.plan)}});
    if (change.freeze) plan.json["changes"].back()["freeze"] = freeze_fields(change.after, change);
  }
  if (const std::string coming = describe_changes(plans.changes, step); !coming.empty())
    plan.text += concat("\n", coming);
  if (resume) {
    plan.json["resume"] = {{"checkpoint", resume->source}, {"step", step}, {"total_steps", setup.total_steps}};
    plan.text += concat("\nresumes from ", resume->source, " at step ", step, " of ", setup.total_steps);
  }
  return plan;
}

}  // namespace sluice::train
