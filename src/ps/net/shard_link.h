// shard_link: the lead server's connection to one shard server. Requests are repeated until they are answered, and
// every wait has a limit. A shard server with a log may die and return in between. Threads: the lead server's. Errors:
// ConfigError (refused), PeerError (it does not answer, has failed, or has lost its shards), CheckpointError (it lacks
// the state that the run resumes from), InterruptedError (asked to stop).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/own_time.h"
#include "ps/net/frame_socket.h"
#include "ps/net/refusals.h"
#include "ps/net/shard_messages.h"
#include "ps/other_shards.h"

namespace sluice::ps {

struct ShardLinkOptions {
  std::string host;
  int port = 0;
  Keys keys;
  int number = 1;  // number of that server, for messages
  std::string where;
  comm::Agreement agreement;
  Assignment assignment;
  std::string run;              // id of the run, kept when it is resumed
  std::string start = {};       // how to start that server, for errors
  std::string start_anew = {};  // how to restart the run if its shards are lost, for errors
  std::string find_kept = {};   // what to do if it lacks the shards that it should have kept, for errors
  bool may_come_back = false;   // it has a log
  Nanoseconds heartbeat_interval = 500'000'000;
  Nanoseconds peer_timeout = 60'000'000'000;      // silence of that server
  Nanoseconds connect_timeout = 300'000'000'000;  // until its first answer
  std::function<bool()> is_stopped = [] { return false; };
};

// The part of a ShardLink that PushIntake uses: which parts of pushes the shard server holds.
class PartHolder {
 public:
  virtual ~PartHolder() = default;
  [[nodiscard]] virtual PartState part_state(const PushKey& push) const = 0;  // as last reported
  virtual void ask_for(const PushKey& push) = 0;
};

// The first state that is not kFinite, else kFinite.
[[nodiscard]] inline PartState part_state(const std::vector<PartHolder*>& holders, const PushKey& push) {
  for (const PartHolder* holder : holders) {
    if (const PartState state = holder->part_state(push); state != PartState::kFinite) return state;
  }
  return PartState::kFinite;
}

inline void ask_for_missing(const std::vector<PartHolder*>& holders, const PushKey& push) {
  for (PartHolder* holder : holders) {
    if (holder->part_state(push) == PartState::kMissing) holder->ask_for(push);
  }
}

class ShardLink final : public OtherShards, public PartHolder {
 public:
  explicit ShardLink(ShardLinkOptions options);

  // Both wait until the server is there. load() gives it these shards. resume() uses the shards that it has kept
  // itself, after this update or the one before, whose steps were remembered.
  void load(const ShardsState& state, std::int64_t version);
  void resume(std::int64_t version);
  // Pushes whose parts it held when it connected. The numbers of their incarnations must not be reused.
  [[nodiscard]] std::vector<PushKey> parts() const { return here_ ? here_->parts : std::vector<PushKey>{}; }

  void prepare(const ShardStep& step) override;
  [[nodiscard]] Prepared prepared() override;
  void commit(const ShardStep& step, const ShardUpdate& update) override;
  void committed() override;
  void remember(const ShardStep& step, const ShardUpdate& update) override;
  void ask_for_state() override;
  [[nodiscard]] ShardsState state() override;
  // The next requested state is for a checkpoint: the shard server's log begins there.
  void begin_log_at_next_state() { begins_log_ = true; }

  // Sends the state of a worker: at once, or after the greeting is answered, with all other workers.
  void send_worker(const WorkerThere& there);
  [[nodiscard]] PartState part_state(const PushKey& push) const override;
  void ask_for(const PushKey& push) override { send(PartAsked{push}); }

  [[nodiscard]] bool is_here() const { return here_.has_value(); }
  // Handles all received messages; sends a heartbeat if it is due.
  void look();
  void end(const ShardsOver& over) { send(over); }
  // Called repeatedly during a wait, which may be as long as the silence limit.
  void while_waiting(std::function<void()> act) { while_waiting_ = std::move(act); }
  // Set if that server was asked to stop and waits until its weights are saved; otherwise empty.
  [[nodiscard]] const std::string& why_to_stop() const { return why_to_stop_; }
  [[nodiscard]] bool is_lost() const { return is_lost_; }  // the connection has failed for good
  [[nodiscard]] FrameSocket& socket() { return socket_; }
  [[nodiscard]] std::string named() const { return server_named(options_.number, options_.host, options_.port); }

 private:
  void receive_all();
  void wait_for(const std::function<bool()>& condition, const std::function<void()>& ask_again);
  void on_message(const Frames& frames);
  void on_shards_here(const ShardsHere& here);
  void on_prepared(const StepPrepared& prepared);
  void on_committed(const StepCommitted& committed);
  void on_state_given(const StateGiven& given, const Frames& frames);
  void on_heartbeat(const ShardHeartbeat& heartbeat);
  void on_failed(const ShardsFailed& failed);

  void restart_greeting();
  void check_came_back(const ShardsHere& here) const;
  void send_workers_again();
  void send(const FromLead& message) { socket_.send({}, {header_of(message)}); }

  ShardLinkOptions options_;
  std::string process_id_;
  FrameSocket socket_;
  OwnClock clock_;
  std::function<void()> while_waiting_;
  Nanoseconds last_message_at_ = 0;
  Nanoseconds next_heartbeat_ = 0;
  bool is_greeting_ = true;  // until ShardsHere answers greeting_
  std::int64_t greeting_ = 1;
  std::int64_t heartbeats_ = 0;
  std::optional<ShardsHere> here_;
  std::string process_of_shards_;  // id of the process that has this run's shards; empty: not known yet
  std::int64_t version_ = 0;
  std::optional<StepAsked> asked_;
  std::optional<Prepared> prepared_;
  bool is_committed_ = false;
  std::vector<StepAsked> last_steps_;  // second halves of the last update
  bool begins_log_ = false;
  StateAsked state_asked_;
  std::optional<ShardsState> state_;
  std::map<WorkerId, WorkerThere> workers_;  // last state of each worker, including those that have left
  std::int64_t sent_workers_ = 0;            // since greeting_ was answered; sent in heartbeats for comparison
  std::map<WorkerId, PartHeld> held_;
  bool is_lost_ = false;
  std::string why_to_stop_;
};

}  // namespace sluice::ps
