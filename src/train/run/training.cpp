#include "train/run/training.h"

#include <optional>

#include "core/concat.h"
#include "engine/same_state.h"
#include "engine/state.h"
#include "train/plan/choose_chunks.h"
#include "train/plan/freeze_watch.h"
#include "train/plan/replan_watch.h"
#include "train/run/local_steps.h"
#include "train/run/saved_average.h"
#include "train/setup/setup.h"
#include "train/setup/task_options.h"
#include "train/trace/observers.h"
#include "train/trace/slow_watch.h"

namespace sluice::train {

void synchronize_start(const Training& training) {
  if (!training.peers.is_alone()) engine::hand_out_state(training.engine.composition());
  if (training.plans.tries_chunks) decide_chunks(training.setup, training.engine, training.progress().position);
}

storage::CheckpointContents contents_at(const Training& training, const Progress& progress,
                                        const report::MetricsPosition& metrics) {
  const engine::Composition& composition = training.engine.composition();
  const RunState state{.progress = progress,
                       .optimizer_steps = composition.optimizers.front()->steps(),
                       .updates = engine::update_counts(composition),
                       .plan = training.engine.plan(),
                       .changes = training.plans.changes,
                       .norms = training.plans.norms,
                       .processes = training.setup.process.processes,
                       .arithmetic = arithmetic_of(training.setup.devices),
                       .server = training.updates != nullptr ? training.updates->state() : nlohmann::json(),
                       .metrics = metrics,
                       .config_toml = training.start.state.config_toml,
                       .data = training.start.state.data};
  storage::CheckpointContents contents{training.engine.model_between_steps(), engine::optimizer_tensors(composition),
                                       state.to_json()};
  put_constants(training.setup.constants, contents);
  contents.beside = training.setup.beside_weights;
  contents.adapter = adapter_beside_weights(training.setup.model, contents.model);
  set_average_apart(contents);
  return contents;
}

namespace {

std::unique_ptr<StepSource> own_steps(const Training& training) {
  const auto open = [&](data::Position position) {
    const data::LoaderOptions options = train_loader_options(training.setup, training.engine.plan());
    return std::make_unique<data::Loader>(*training.setup.train_set, with_features(options, training.features),
                                          position);
  };
  return std::make_unique<LocalSteps>(open, training.features != nullptr, training.progress().position);
}

Observers observe(const Training& training) {
  const Setup& setup = training.setup;
  const bool serves = training.updates != nullptr && !setup.servers.empty();
  return make_observers({setup, training.peers.others(), training.engine, training.updates == nullptr},
                        traces_of_run(training.start.traced.own,
                                      serves ? part_of_server(setup) : part_of_process(setup), training.run_dir),
                        training.start.traced.torch, training.run_dir);
}

LoopPeers peers_of(const Training& training) {
  return loop_peers(training.peers, [&training](const Progress& progress) {
    save_for_rank_0(training.start.run_dir_id, progress.steps_done,
                    [&](const auto& metrics) { return contents_at(training, progress, metrics); });
  });
}

void keep_state(const Training& training, const std::optional<Progress>& progress) {
  training.kept.reset();
  if (progress) training.kept.emplace(*progress, contents_at(training, *progress, {}));
}

void compare_processes(const Training& training, const Observers& observers, const Records& records) {
  if (training.peers.is_alone()) return;
  records.event("ranks", observers.times.of_all(training.peers.communicator()));
  engine::check_same_state(training.engine.composition(), "at the end");
  records.note(concat("all ", training.peers.process().processes, " processes ended with bit-identical parameters"));
}

// With replicas.elastic the state is kept until rank 0 has saved it.
void wait_for_all(const Training& training) {
  if (training.setup.config.replicas.elastic && !training.peers.is_alone()) training.peers.communicator().barrier();
}

void make_all_steps(const Training& training, Loop& loop, Observers& observers, const Records& records) {
  try {
    run_traced(
        training.peers, observers.trace, [&] { loop.run(); }, rescue_before_end(loop, training.peers.process().rank));
  } catch (const InterruptedError&) {
    wait_for_all(training);
    throw;
  }
  compare_processes(training, observers, records);
}

}  // namespace

void run_loop(const Training& training, LoopOptions options, Records& records,
              const std::function<void(std::int64_t)>& finish) {
  options.score_every_steps = training.start.score_every_steps;
  const auto& setup = training.setup;
  const std::unique_ptr<StepSource> own = training.updates == nullptr ? own_steps(training) : nullptr;
  const auto open_eval_data = [&] {
    const data::LoaderOptions of_replicas = eval_loader_options(setup, training.engine.plan());
    return std::make_unique<data::Loader>(*setup.test_set, with_features(of_replicas, training.features));
  };
  std::optional<FreezeWatch> watch;
  if (!is_known_beforehand(policy_of(setup)))
    watch.emplace(training.peers, setup, training.engine, training.plans, training.progress());
  Observers observers = observe(training);
  std::vector<StepObserver*> all_observers = observers.all();
  PlanSource plans = watch ? watch->source() : source_of(training.plans.changes);
  const auto report_as = [&records](const char* event) {
    return [&records, event](const std::string& line, const nlohmann::ordered_json& fields) {
      records.note(line);
      records.event(event, fields);
    };
  };
  std::optional<ReplanWatch> replan;
  if (setup.config.pipeline.replans() || !setup.config.replicas.shares.is_equal()) {
    replan.emplace(setup, training.peers.others(), training.plans, report_as("replan"));
    plans = replan->source(plans);
    all_observers.push_back(&*replan);
  }
  SlowWatch slow(setup, training.peers.others(), report_as("slow"),
                 [&](const Plan& plan) { return replan ? replan->work_ratios(plan) : std::vector<double>(); });
  if (training.updates == nullptr) all_observers.push_back(&slow);
  training.kept.reset();  // the engine has the state
  Loop loop({.engine = training.engine,
             .steps = own ? *own : *training.updates,
             .open_eval_data = open_eval_data,
             .plans = std::move(plans),
             .records = records,
             .features = training.features,
             .observers = std::move(all_observers),
             .peers = peers_of(training),
             .make_judge = [&] { return make_judge(setup); }},
            std::move(options), training.progress());
  try {
    make_all_steps(training, loop, observers, records);
    finish(loop.steps_done());
    wait_for_all(training);
  } catch (const PeerError& error) {
    if (replan) replan->finish();
    if (training.peers.changes_group(error)) keep_state(training, loop.whole_progress());
    throw;
  }
}

}  // namespace sluice::train
