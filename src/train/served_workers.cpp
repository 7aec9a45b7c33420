#include "train/served_workers.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "pipeline/failure.h"
#include "ps/net/log_files.h"
#include "ps/net/network_server.h"
#include "ps/net/push_log.h"
#include "ps/net/push_replay.h"
#include "ps/worker_sync.h"
#include "storage/files.h"
#include "train/agreement.h"
#include "train/other_servers.h"
#include "train/saved_server.h"
#include "train/server_run.h"
#include "train/stop_signal.h"
#include "train/worker_news.h"

namespace sluice::train {
namespace {

constexpr int kMostStates = 2;  // copies of the weights that wait for the loop
constexpr std::int64_t kEndOfLogs = std::numeric_limits<std::int64_t>::max();
constexpr Nanoseconds kServeFor = 100'000'000;       // before the next look at signals
constexpr Nanoseconds kTurnAwayFor = 2'000'000'000;  // where the run does not begin

bool is_interrupted(const Error& error) { return error.exit_code() == ExitCode::kInterrupted; }

class ServedWorkers final : public UpdateSource {
 public:
  ServedWorkers(const Setup& setup, ServerPlace place, const std::string& version_of_sluice, const PushFolder& pushes,
                std::int64_t version, const std::optional<SavedServer>& saved)
      : setup_(setup),
        place_(std::move(place)),
        version_of_sluice_(version_of_sluice),
        agreement_(served_agreement(setup, version_of_sluice)),
        goes_on_(saved.has_value()),
        begin_{.version = version, .examples = saved ? saved->examples : 0},
        saved_(saved.value_or(SavedServer{})),
        takes_pushes_(pushes.goes_on),
        pushes_({.folder = pushes.path,
                 .outlives = outlives_of(setup.config.ps),
                 .agreement = agreement_with_log(agreement_)}),
        replay_({.folder = pushes.goes_on ? pushes.path : "", .agreement = pushes_.agreement}, version),
        ledger_(ledger_options(setup), saved_.ledger) {}
  ~ServedWorkers() override {
    stop();
    // Where it was done they have heard so.
    others_.end(failure_.value_or(Error(ExitCode::kPeer, "it has failed; see what it says")));
  }

  engine::SyncFactory sync_factory() override {
    return [this](engine::SyncRequest request) {
      stages_ = request.stages;  // the engine only evaluates: its own sync is never used
      return engine::make_sync(std::move(request));
    };
  }

  optim::OptimizerOptions optimizer() const override { return server_options(setup_).optimizer; }

  std::optional<RecordedStep> next_update(engine::Engine& engine, const engine::StepWishes&) override {
    if (!thread_.joinable()) start(engine);
    std::optional<Told> told = wait_for_update();
    if (!told) {
      if (failure_ && failure_->exit_code() == ExitCode::kDiverged) throw DivergedError(failure_->what());
      const bool may_save = !failure_ || failure_->exit_code() == ExitCode::kPeer || is_interrupted(*failure_);
      if (!may_save || others_.is_any_lost()) throw Error(*failure_);
      if (log_) network_->begin_journal();  // its thread has ended
      take_weights(engine, server_->state(), ledger_.state());
      others_.end(failure_);
      holds_weights_ = true;
      return std::nullopt;
    }
    const ps::NetworkUpdate& update = told->update;
    holds_weights_ = update.state.has_value();
    if (update.state) take_weights(engine, *update.state, *update.ledger);
    return as_step(engine, *told);
  }

  bool holds_weights() const override { return holds_weights_; }
  void want_weights() override { wants_state_ = true; }
  std::optional<Error> why_over() const override {
    const std::scoped_lock lock(mutex_);
    return failure_;
  }
  Events last_events() override {
    return events_of(take_news(), server_ ? server_->progress().version : begin_.version);
  }
  nlohmann::json state() const override { return saved_.to_json(); }
  void saved(const std::vector<std::int64_t>& steps) override {
    if (steps.empty()) return;
    const bool is_done = steps.front() >= setup_.total_steps;
    ps::remove_logs(pushes_.folder, 0, is_done ? kEndOfLogs : steps.back());
    if (is_done) others_.end({});
  }
  void give_up() override {
    stop();
    ps::remove_logs(pushes_.folder, 0, kEndOfLogs);
  }
  nlohmann::ordered_json fields() const override {
    nlohmann::ordered_json fields = fields_of(setup_.config.ps, policy_of_server(setup_.config.ps));
    fields["encrypted"] = place_.keys.encrypts();
    return fields;
  }

 private:
  struct Told {
    ps::NetworkUpdate update;
    std::vector<ps::WorkerNews> news;  // since the one before
  };

  void stop() {
    must_stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void start(engine::Engine& engine) {
    // Before anybody is waited for: a second server of this place is refused at once.
    storage::FileDescriptor listening(listen_at_own_place(place_));
    const config::PsConfig& config = setup_.config.ps;
    const ps::Layout layout = ps::layout_of(stages_, {.shards = config.shards * config.servers});
    const std::vector<at::Tensor> values = ps::values_of(stages_);
    pushes_.run = replay_.run().empty() ? ps::unique_name() : replay_.run();
    others_.connect({.setup = setup_, .place = place_, .version = version_of_sluice_, .run = pushes_.run}, layout);
    ps::ServerOptions with = server_options(setup_);
    with.threads = device::available_cores();
    with.others = others_.as_shards();
    server_ = std::make_unique<ps::Server>(layout, values, ps::statistics_of(stages_), std::move(with), begin_);
    ps::ServerState before{.lives = saved_.lives};
    if (goes_on_) {
      before.optimizer = optimizer_in(engine, layout);
      server_->go_on_from(before);
    }
    std::vector<ps::TakenPush> waiting = replay();
    try {
      place_others(ps::to_shards(layout, values), before.optimizer);
    } catch (const Error& error) {
      turn_workers_away(error, listening.release());
      throw;
    }
    begin_log(waiting);
    ps::NetworkOptions options = network_options();
    options.listening = listening.release();
    options.journal = log_.get();
    options.taken_before = std::move(waiting);
    options.others = others_.links();
    network_ = std::make_unique<ps::NetworkServer>(*server_, ledger_, std::move(options));
    log_info(concat("parameter server for ", counted(setup_.config.ps.workers, "worker"), " at ", place_.host, ":",
                    network_->port(), place_.keys.encrypts() ? "" : ", without keys: on this machine only"));
    last_ = now_ns();
    thread_ = std::thread([this] { serve(); });
  }

  // With what the checkpoint has of theirs; where the log has more, they have kept it themselves.
  void place_others(const std::vector<at::Tensor>& shards, const ps::NamedStates& optimizer) {
    const std::int64_t version = server_->progress().version;
    const bool go_on = replay_.updates() + replay_.waiting() > 0;
    if (!go_on) return others_.load(shards, optimizer, version);
    others_.go_on(version);
    for (const ps::ShardLink* other : others_.links()) {
      for (const ps::PushKey& push : other->parts()) server_->remember_life(push);
    }
    if (!others_.links().empty() && version >= setup_.total_steps && !made_.empty()) {
      made_.back().update.state = server_->state();  // the log could not tell that
      made_.back().update.ledger = ledger_.state();
    }
  }

  // Who has come by now hears why nothing begins.
  void turn_workers_away(const Error& error, int listening) {
    others_.end(error);
    ps::NetworkOptions options = network_options();
    options.listening = listening;
    options.others = others_.links();
    ps::NetworkServer(*server_, ledger_, std::move(options))
        .turn_away({static_cast<std::int64_t>(error.exit_code()), error.what()}, kTurnAwayFor);
  }

  // What an earlier server of this run had taken after the checkpoint. Returns what is in no update yet.
  std::vector<ps::TakenPush> replay() {
    if (replay_.updates() + replay_.waiting() > 0)
      log_info(concat("the log in ", pushes_.folder.string(), " has ", counted(replay_.updates(), "update"),
                      " after update ", begin_.version, ", and ", counted(replay_.waiting(), "push"),
                      " that no update has: they are taken again"));
    return replay_.into(
        {.server = *server_,
         .ledger = ledger_,
         .last_version = setup_.total_steps,
         .wants_state = [this](const auto& before,
                               const auto& after) { return others_.links().empty() && wants_state(before, after); },
         .tell = [this](ps::NetworkUpdate update) { hand_over(std::move(update)); }});
  }

  // From where the server is now; files of another course are in the way.
  void begin_log(const std::vector<ps::TakenPush>& waiting) {
    const std::vector<std::int64_t> there = ps::logged_versions(pushes_.folder);
    if (replay_.is_outdated()) {
      log_info(concat("the log in ", pushes_.folder.string(), " is older than the checkpoint, and is removed"));
      ps::remove_logs(pushes_.folder, 0, kEndOfLogs);
    } else if (!takes_pushes_ && !there.empty() && there.back() >= begin_.version) {
      ps::set_logs_aside(pushes_.folder, begin_.version,
                         concat("the run goes back to step ", begin_.version,
                                ", and does without what its server had taken after that"));
    }
    if (setup_.config.ps.log == "off") return;
    log_ = std::make_unique<ps::PushLog>(pushes_, server_->layout());
    log_->begin(server_->weights(), waiting);
  }

  void take_weights(engine::Engine& engine, const ps::ServerState& state, data::LedgerState ledger) {
    load_from_server(engine, server_->layout(), state);
    saved_ = {.examples = state.progress.examples, .lives = state.lives, .ledger = std::move(ledger)};
  }

  ps::NetworkOptions network_options() {
    const config::Config& config = setup_.config;
    return {.host = place_.host,
            .port = place_.port,
            .keys = place_.keys,
            .agreement = agreement_,
            .compression = compression_options(config.ps),
            .last_version = setup_.total_steps,
            .silence = from_s(config.replicas.hang_timeout_s),
            .patience = from_s(config.replicas.connect_timeout_s),
            .wants_state = [this](const auto& before, const auto& after) { return wants_state(before, after); },
            .tell = [this](const ps::WorkerNews& news) { hear(news); }};
  }

  // --- The server's thread.

  void serve() {
    device::use_cpu_threads(1);  // its shards are what is done at once
    std::optional<Error> failure;
    try {
      network_->end(serve_until_over());
    } catch (const Error& error) {
      failure = error;
    } catch (...) {
      failure = pipeline::describe_failure(std::current_exception(), "the parameter server");
    }
    try {
      if (failure) network_->end({static_cast<std::int64_t>(failure->exit_code()), failure->what()});
      while (!network_->is_over()) hand_over(network_->next(kServeFor));
    } catch (const std::exception& error) {  // the workers will notice its silence
      log_warning(error.what());
    }
    const std::scoped_lock lock(mutex_);
    const bool have_all_left = failure && failure->exit_code() == ExitCode::kPeer;
    if (!have_all_left || !StopSignal::requested()) failure_ = std::move(failure);  // else they were told to stop, too
    has_ended_ = true;
    changed_.notify_all();
  }

  // What the workers are told.
  ps::Over serve_until_over() {
    while (!network_->is_over()) {
      if (StopSignal::requested()) return {static_cast<std::int64_t>(ExitCode::kInterrupted), "it was stopped"};
      if (must_stop_) return {static_cast<std::int64_t>(ExitCode::kPeer), "it has failed; see what it says"};
      hand_over(network_->next(kServeFor));
    }
    return {};
  }

  void hand_over(std::optional<ps::NetworkUpdate> update) {
    if (!update) return;
    const std::scoped_lock lock(mutex_);
    if (update->state) ++states_;
    made_.push_back({std::move(*update), std::exchange(news_, {})});
    changed_.notify_all();
  }

  // The loop will evaluate or save after this update. Not where it is far behind: copies would fill the memory.
  bool wants_state(const ps::ServerProgress& before, const ps::ServerProgress& after) {
    const config::Config& config = setup_.config;
    const auto is_multiple = [&](std::int64_t of) { return of > 0 && after.version % of == 0; };
    const bool evaluates = config.train.eval_every_steps > 0 ? is_multiple(config.train.eval_every_steps)
                                                             : ends_epoch(before, after, setup_.train_set->size());
    {
      const std::scoped_lock lock(mutex_);
      if (states_ >= kMostStates) return false;
    }
    return evaluates || is_multiple(config.checkpoint.every_steps) || wants_state_.exchange(false);
  }

  void hear(const ps::WorkerNews& news) {
    log_news(news);
    const std::scoped_lock lock(mutex_);
    news_.push_back(news);
  }

  // --- The loop's.

  std::optional<Told> wait_for_update() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !made_.empty() || has_ended_; });
    if (made_.empty()) return std::nullopt;
    Told told = std::move(made_.front());
    made_.pop_front();
    if (told.update.state) --states_;
    return told;
  }

  RecordedStep as_step(engine::Engine& engine, const Told& told) {
    const ps::NetworkUpdate& update = told.update;
    const std::int64_t version = update.done.update.version;
    RecordedStep step{.batch = place_of(update.before, update.after, setup_),
                      .stats = stats_of(update.pushes, /*counts_correct=*/true),
                      .events = events_of(told.news, version)};
    for (const ps::PushDone& push : update.pushes) {
      step.events.emplace_back("push", fields_of(push, version));
      if (is_local_) log_info(describe_round(setup_, push));
    }
    if (!is_local_) step.lr = update.done.lr;
    if (!is_local_ && setup_.config.train.clip_norm > 0) step.stats.gradient_norm = update.done.gradient_norm;
    if (const std::string said = describe_update(setup_, update.done, step.stats, to_s(update.at - last_));
        !said.empty())
      log_info(said);
    step.spans = engine.recorder().collect(version, last_, std::max(update.at, last_));
    step.spans.places.clear();  // nobody trains here
    last_ = std::max(update.at, last_);
    return step;
  }

  std::vector<ps::WorkerNews> take_news() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(news_, {});
  }

  const Setup& setup_;
  ServerPlace place_;
  std::string version_of_sluice_;
  comm::Agreement agreement_;
  bool goes_on_;
  bool is_local_ = workers_update(setup_.config);
  ps::ServerProgress begin_;
  SavedServer saved_;  // beside the weights that the engine holds
  std::vector<comm::SyncedStage> stages_;
  // The thread's, from its start to its end.
  OtherServers others_;
  std::unique_ptr<ps::Server> server_;
  bool takes_pushes_;
  ps::PushLogOptions pushes_;
  ps::PushReplay replay_;
  data::Ledger ledger_;
  std::unique_ptr<ps::PushLog> log_;  // null: ps.log = "off"
  std::unique_ptr<ps::NetworkServer> network_;

  bool holds_weights_ = false;
  Nanoseconds last_ = 0;  // when the last update was made
  std::atomic<bool> wants_state_ = false;
  std::atomic<bool> must_stop_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Told> made_;  // guarded by mutex_, as what follows
  int states_ = 0;         // among them
  std::vector<ps::WorkerNews> news_;
  bool has_ended_ = false;
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace

comm::Agreement served_agreement(const Setup& setup, const std::string& version) {
  comm::Agreement agreement = agreement_with_server(setup.config, version);
  agreement["the digest of the training samples"] = setup.data.train.digest;
  return agreement;
}

std::unique_ptr<UpdateSource> make_served_workers(const Setup& setup, const ServerPlace& place,
                                                  const std::string& version, const PushFolder& pushes,
                                                  const RunState* saved) {
  std::optional<SavedServer> server;
  if (saved != nullptr) server = SavedServer::from_json(saved->server, ledger_options(setup), "the checkpoint");
  return std::make_unique<ServedWorkers>(setup, place, version, pushes,
                                         saved != nullptr ? saved->progress.steps_done : 0, server);
}

}  // namespace sluice::train
