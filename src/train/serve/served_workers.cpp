#include "train/serve/served_workers.h"

#include <fcntl.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "ps/net/log_files.h"
#include "ps/net/log_recovery.h"
#include "ps/net/network_server.h"
#include "ps/net/push_log.h"
#include "ps/worker_sync.h"
#include "storage/files.h"
#include "train/serve/other_servers.h"
#include "train/serve/saved_server.h"
#include "train/serve/server_events.h"
#include "train/serve/server_run.h"
#include "train/serve/server_thread.h"
#include "train/setup/agreement.h"
#include "train/setup/run_state.h"
#include "train/setup/server_settings.h"

namespace sluice::train {
namespace {

constexpr Nanoseconds kRejectFor = 2'000'000'000;  // if the run cannot begin

bool may_save_after(const std::optional<Error>& failure) {
  return !failure || failure->exit_code() == ExitCode::kPeer || failure->exit_code() == ExitCode::kInterrupted;
}

// The run's push log (ps.log): what an earlier process logged after the checkpoint, and what this one logs.
class RecoveredLog {
 public:
  // version: of the checkpoint.
  RecoveredLog(const Setup& setup, const PushFolder& folder, const comm::Agreement& agreement, std::int64_t version)
      : is_on_(setup.config.ps.log != "off"),
        replays_(folder.takes_pushes),
        version_(version),
        options_({.folder = folder.path,
                  .outlives = outlives_of(setup.config.ps),
                  .agreement = agreement_with_log(agreement)}),
        recovery_({.folder = replays_ ? folder.path : "", .agreement = options_.agreement}, version) {
    options_.run = recovery_.run().empty() ? ps::unique_name() : recovery_.run();
  }

  [[nodiscard]] const std::string& run() const { return options_.run; }
  [[nodiscard]] bool has_pushes() const { return recovery_.updates() + recovery_.waiting() > 0; }

  // Replays what was committed after the checkpoint. Returns the pushes that are in no update.
  [[nodiscard]] std::vector<ps::CommittedPush> replay(const ps::LogRecovery::Target& into) const {
    if (has_pushes())
      log_info("the log in ", options_.folder.string(), " has ", counted(recovery_.updates(), "update"),
               " after update ", version_, ", and ", counted(recovery_.waiting(), "push"),
               " without an update yet; replaying them");
    return recovery_.into(into);
  }

  // Returns the log from the server's version on; null if ps.log = "off". Removes or renames another course's files.
  [[nodiscard]] std::unique_ptr<ps::PushLog> begin(const ps::Server& server,
                                                   const std::vector<ps::CommittedPush>& waiting) {
    const std::vector<std::int64_t> there = ps::logged_versions(options_.folder);
    if (recovery_.is_outdated()) {
      log_info("the log in ", options_.folder.string(), " is older than the checkpoint; removing it");
      remove();
    } else if (!replays_ && !there.empty() && there.back() >= version_) {
      ps::set_logs_aside(options_.folder, version_,
                         concat("the run restarts from step ", version_, " without the later updates in the log"));
    }
    if (!is_on_) return nullptr;
    auto log = std::make_unique<ps::PushLog>(options_, server.layout());
    log->begin(server.weights(), waiting);
    return log;
  }

  void remove(std::int64_t end = std::numeric_limits<std::int64_t>::max()) const {
    ps::remove_logs(options_.folder, 0, end);
  }

 private:
  bool is_on_;
  bool replays_;
  std::int64_t version_;
  ps::PushLogOptions options_;
  ps::LogRecovery recovery_;
};

class ServedWorkers final : public UpdateSource {
 public:
  ServedWorkers(const Setup& setup, ServerRole role, const std::string& version_of_sluice, const PushFolder& pushes,
                std::int64_t version, const std::optional<SavedServer>& saved)
      : setup_(setup),
        role_(std::move(role)),
        version_of_sluice_(version_of_sluice),
        agreement_(served_agreement(setup, version_of_sluice)),
        has_checkpoint_(saved.has_value()),
        begin_{.version = version, .examples = saved ? saved->examples : 0},
        saved_(saved.value_or(SavedServer{})),
        log_(setup, pushes, agreement_, version),
        ledger_(ledger_options(setup), saved_.ledger),
        thread_(setup) {}
  ~ServedWorkers() override {
    thread_.stop();
    // If the run is done, finish() has already sent the end.
    others_.end(thread_.failure().value_or(it_has_failed()));
  }

  engine::SyncFactory sync_factory() override {
    return [this](engine::SyncRequest request) {
      stages_ = request.stages;  // only for evaluation: the engine's own sync is never used
      return engine::make_sync(std::move(request));
    };
  }

  optim::OptimizerOptions optimizer() const override { return server_options(setup_).optimizer; }

  void begin(engine::Engine& engine) override {
    if (!thread_.has_started()) start(engine);
  }

  std::optional<RecordedStep> next_update(engine::Engine& engine, const engine::StepRequest&) override {
    begin(engine);
    const std::optional<ServerThread::MadeUpdate> made = thread_.wait_for_update();
    if (!made) {
      take_last_weights(engine);
      return std::nullopt;
    }
    const ps::NetworkUpdate& update = made->update;
    holds_weights_ = update.state.has_value();
    if (update.state) take_weights(engine, *update.state, *update.ledger);
    return as_step(engine, *made);
  }

  bool holds_weights() const override { return holds_weights_; }
  void want_weights() override { thread_.want_state(); }
  std::optional<Error> why_over() const override { return thread_.failure(); }
  Events last_events() override {
    return events_of(thread_.take_events(), server_ ? server_->progress().version : begin_.version);
  }
  nlohmann::json state() const override { return saved_.to_json(); }
  void saved(const std::vector<std::int64_t>& steps) override {
    if (steps.empty()) return;
    const bool is_done = steps.front() >= setup_.total_steps;
    if (is_done) return finish();
    log_.remove(/*end=*/steps.back());
  }
  void finish() override {
    log_.remove();
    thread_.stop();  // others_ allows one thread at a time
    others_.end(std::nullopt);
  }
  void give_up() override {
    thread_.stop();
    log_.remove();
  }
  nlohmann::ordered_json fields() const override {
    nlohmann::ordered_json fields = fields_of(setup_.config.ps, policy_of_server(setup_.config.ps));
    fields["encrypted"] = role_.keys.encrypts();
    return fields;
  }

 private:
  void start(engine::Engine& engine) {
    // Listens before any wait, so that a second server at this address is rejected at once.
    FileDescriptor listening(listen_at_own_address(role_));
    const ps::Layout layout = ps::layout_of(stages_, {.shards = setup_.config.ps.shards * setup_.config.ps.servers});
    const std::vector<at::Tensor> values = ps::values_of(stages_);
    if (saved_.run.empty()) saved_.run = log_.run();
    connect_others(layout);
    const ps::NamedStates optimizer = make_server(engine, layout, values);
    std::vector<ps::CommittedPush> waiting = replay_log();
    try {
      start_others(ps::to_shards(layout, values), optimizer, listening.get());
    } catch (const Error& error) {
      turn_workers_away(error, listening.release());
      throw;
    }
    journal_ = log_.begin(*server_, waiting);
    serve(listening.release(), std::move(waiting));
  }

  void connect_others(const ps::Layout& layout) {
    others_.connect({.setup = setup_,
                     .role = role_,
                     .version = version_of_sluice_,
                     .run = log_.run(),
                     .has_checkpoint = has_checkpoint_},
                    layout);
  }

  // Returns the checkpoint's optimizer state; empty for a new run.
  ps::NamedStates make_server(engine::Engine& engine, const ps::Layout& layout, const std::vector<at::Tensor>& values) {
    ps::ServerOptions with = server_options(setup_);
    with.threads = device::available_cores();
    with.others = others_.as_shards();
    server_ = std::make_unique<ps::Server>(layout, values, ps::statistics_of(stages_), std::move(with), begin_);
    if (!has_checkpoint_) return {};
    const ps::ServerState before{.optimizer = optimizer_in(engine, layout), .incarnations = saved_.incarnations};
    server_->resume_from(before);
    return before.optimizer;
  }

  std::vector<ps::CommittedPush> replay_log() {
    return log_.replay({.server = *server_,
                        .ledger = ledger_,
                        .last_version = setup_.total_steps,
                        .wants_state =
                            [this](const auto& before, const auto& after) {
                              return others_.links().empty() && thread_.wants_state(before, after);
                            },
                        .on_update = [this](ps::NetworkUpdate update) { thread_.hand_over(std::move(update)); }});
  }

  void serve(int listening, std::vector<ps::CommittedPush> waiting) {
    ps::NetworkOptions options = network_options();
    options.listening = listening;
    options.journal = journal_.get();
    options.committed_before = std::move(waiting);
    options.others = others_.links();
    network_ = std::make_unique<ps::NetworkServer>(*server_, ledger_, std::move(options));
    log_info("parameter server for ", counted(setup_.config.ps.workers, "worker"), " at ", role_.host, ":",
             network_->port(), role_.keys.encrypts() ? "" : ", without keys (this machine only)");
    last_ = now_ns();
    thread_.start(*network_, [this](const std::optional<Error>& failure) { return state_at_the_end(failure); });
  }

  // Takes the state and sends the other servers the end at once. No failure means that the run was stopped.
  std::optional<ps::ServerState> state_at_the_end(const std::optional<Error>& failure) {
    if (!may_save_after(failure) || others_.is_any_lost()) return std::nullopt;
    ps::ServerState state = server_->state();
    others_.end(failure.value_or(it_was_stopped()));
    return state;
  }

  void take_last_weights(engine::Engine& engine) {
    thread_.stop();
    const std::optional<Error> failure = thread_.failure();
    if (failure && failure->exit_code() == ExitCode::kDiverged) throw DivergedError(failure->what());
    const auto state = thread_.take_last_state();
    check(state || failure, "a last state, unless the server has failed");
    if (!state) throw Error(*failure);
    if (journal_) network_->begin_journal();
    take_weights(engine, *state, ledger_.state());
    holds_weights_ = true;
  }

  // Loads the checkpoint's shards, or resumes kept shards if the log has later updates. Meanwhile early workers get
  // heartbeats.
  void start_others(const std::vector<at::Tensor>& shards, const ps::NamedStates& optimizer, int listening) {
    if (others_.links().empty()) return;
    ps::FrameSocket listener(ps::FrameSocket::Role::kListening, {}, {}, role_.keys);
    static_cast<void>(listener.take_over(::fcntl(listening, F_DUPFD_CLOEXEC, 0)));
    for (ps::ShardLink* other : others_.links()) other->while_waiting([&listener] { keep_alive(listener); });
    const std::int64_t version = server_->progress().version;
    if (!log_.has_pushes()) return others_.load(shards, optimizer, version);
    others_.resume(version);
    for (const ps::ShardLink* other : others_.links()) {
      for (const ps::PushKey& push : other->parts()) server_->remember_incarnation(push);
    }
    if (version < setup_.total_steps) return;
    thread_.complete_newest([this](ps::NetworkUpdate& update) {
      update.state = server_->state();  // the log does not contain it
      update.ledger = ledger_.state();
    });
  }

  static void keep_alive(ps::FrameSocket& listener) {
    constexpr int kMostAtOnce = 64;
    for (int left = kMostAtOnce; left > 0; --left) {
      const auto received = listener.next();
      if (!received) return;
      const ps::ServerHeartbeat of_nobody{ps::kNone, ps::kNone, {}};
      if (ps::from_worker(received->frames.front()))
        listener.send(received->routing_id, {ps::header_of(ps::FromServer(of_nobody))});
    }
  }

  void turn_workers_away(const Error& error, int listening) {
    others_.end(error);
    ps::NetworkOptions options = network_options();
    options.listening = listening;
    options.others = others_.links();
    ps::NetworkServer(*server_, ledger_, std::move(options)).reject_all(ending_of(error), kRejectFor);
  }

  void take_weights(engine::Engine& engine, const ps::ServerState& state, data::LedgerState ledger) {
    load_from_server(engine, server_->layout(), state);
    saved_.examples = state.progress.examples;
    saved_.incarnations = state.incarnations;
    saved_.ledger = std::move(ledger);
  }

  ps::NetworkOptions network_options() {
    const config::Config& config = setup_.config;
    return {.host = role_.host,
            .port = role_.port,
            .keys = role_.keys,
            .agreement = agreement_,
            .compression = compression_options(config.ps),
            .run = saved_.run,
            .constants = setup_.constants.to_json().dump(),
            .last_version = setup_.total_steps,
            .peer_timeout = from_s(config.replicas.hang_timeout_s),
            .connect_timeout = from_s(config.replicas.connect_timeout_s),
            .wants_state = [this](const auto& before, const auto& after) { return thread_.wants_state(before, after); },
            .on_event = [this](const ps::WorkerEvent& event) { thread_.on_event(event); }};
  }

  RecordedStep as_step(engine::Engine& engine, const ServerThread::MadeUpdate& made) {
    const ps::NetworkUpdate& update = made.update;
    const std::int64_t version = update.done.update.version;
    // The wait for the first workers is not part of a step.
    const Nanoseconds begin = std::max(last_, update.open_since.value_or(last_)), end = std::max(update.at, begin);
    RecordedStep step = step_of(setup_, {.done = update.done,
                                         .pushes = update.pushes,
                                         .before = update.before,
                                         .after = update.after,
                                         .seconds = to_s(end - begin)});
    const Events events = events_of(made.events, version);
    step.events.insert(step.events.begin(), events.begin(), events.end());
    step.spans = engine.recorder().collect(version, begin, end);
    step.spans.slots.clear();  // no slot of this process trains
    last_ = end;
    return step;
  }

  const Setup& setup_;
  ServerRole role_;
  std::string version_of_sluice_;
  comm::Agreement agreement_;
  bool has_checkpoint_;
  ps::ServerProgress begin_;
  SavedServer saved_;  // belongs to the engine's weights
  std::vector<comm::SyncedStage> stages_;
  // While the server's thread runs, only it may change the members from here to network_.
  OtherServers others_;
  std::unique_ptr<ps::Server> server_;
  RecoveredLog log_;
  data::Ledger ledger_;
  std::unique_ptr<ps::PushLog> journal_;  // null if ps.log = "off"
  std::unique_ptr<ps::NetworkServer> network_;

  bool holds_weights_ = false;
  Nanoseconds last_ = 0;
  ServerThread thread_;
};

}  // namespace

comm::Agreement served_agreement(const Setup& setup, const std::string& version) {
  comm::Agreement agreement = agreement_with_server(setup.config, version);
  agreement["the digest of the training samples"] = setup.data.train.digest;
  return agreement;
}

std::unique_ptr<UpdateSource> make_served_workers(const Setup& setup, const ServerRole& role,
                                                  const std::string& version, const PushFolder& pushes,
                                                  const RunState* saved) {
  std::optional<SavedServer> server;
  if (saved != nullptr) server = SavedServer::from_json(saved->server, ledger_options(setup), "the checkpoint");
  return std::make_unique<ServedWorkers>(setup, role, version, pushes,
                                         saved != nullptr ? saved->progress.steps_done : 0, server);
}

}  // namespace sluice::train
