// shard_server: a server process that keeps some of the shards and decides nothing. Workers push their parts to it and
// get their weights from it. The lead server (network_server.h) sends the first shards, the workers that it may accept
// and the steps of updates. With a log it has, after a restart, all parts that it reported and all its steps.
// Threads: one, which calls next() repeatedly. Errors: ConfigError and PeerError of the socket; PeerError without a
// lead server; StorageError, CheckpointError of the log.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/own_time.h"
#include "ps/net/frame_socket.h"
#include "ps/net/push_assembly.h"
#include "ps/net/refusals.h"
#include "ps/net/shard_log.h"
#include "ps/net/shard_messages.h"
#include "ps/shard_keeper.h"

namespace sluice::ps {

struct ShardServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: a free one
  int number = 1;
  Keys keys;
  comm::Agreement agreement;         // the lead server must have the same
  LinkCompression compression = {};  // the lead server must have the same
  optim::OptimizerOptions optimizer;
  int threads = 1;               // number of threads that work on its shards in parallel
  std::filesystem::path folder;  // folder of its log; empty: no log
  storage::Outlives outlives = storage::Outlives::kProcess;
  Nanoseconds heartbeat_interval = 500'000'000;
  Nanoseconds peer_timeout = 60'000'000'000;      // silence of the lead server
  Nanoseconds connect_timeout = 300'000'000'000;  // until a lead server connects; with a log also until it returns
  Nanoseconds drain_timeout = 30'000'000'000;     // after a failure, for the lead server's answer
};

class ShardServer {
 public:
  explicit ShardServer(ShardServerOptions options);

  [[nodiscard]] int port() const { return port_; }
  // Serves for `limit`, or until the run is over.
  void next(Nanoseconds limit);
  [[nodiscard]] const std::optional<ShardsOver>& over() const { return over_; }
  // Asks the lead server to end the run: serve on until over(), because it first takes the weights. May be repeated.
  void ask_to_stop(const InterruptedError& why);
  // Reports the error to the lead server. Returns when the lead server has ended the run, has gone, or has not answered
  // within `drain_timeout`. Afterwards only over() and keeper() may be called.
  void fail(const Error& error);

  [[nodiscard]] bool has_lead() const { return !lead_.empty(); }
  [[nodiscard]] const ShardKeeper* keeper() const { return keeper_.get(); }  // null: it has no shards yet
  [[nodiscard]] std::int64_t malformed() const { return malformed_ + (socket_ ? socket_->dropped() : 0); }

 private:
  struct Peer {
    std::string routing_id;
    Incarnation incarnation;
    std::int64_t version = kNone;  // of the weights of its last step
    PullCompressor pull;
    PushAssembly ahead;
  };

  void listen(const FrameSocket::Limits& limits);
  [[nodiscard]] FrameSocket::Limits limits_of(const Assignment& assignment) const;
  void on_message(const FrameSocket::Received& received);
  void drop();
  void warn_of_greeting(const Hello& hello);
  void on_lead_hello(const std::string& routing_id, const LeadHello& hello);
  [[nodiscard]] std::string refusal_of(const LeadHello& hello) const;
  void on_lead_message(const FromLead& message, const Frames& frames);
  void on_shards_loaded(const ShardsLoaded& loaded, const Frames& frames);
  void on_worker_there(const WorkerThere& there);
  void on_step_asked(const StepAsked& asked);
  void on_state_asked(const StateAsked& asked);
  void on_push_ahead(const std::string& routing_id, const PushAhead& ahead, const Frames& frames);
  void on_part_made(const std::string& routing_id, const PartMade& part, const Frames& frames);
  void on_part_heartbeat(const std::string& routing_id, const PartHeartbeat& heartbeat);

  [[nodiscard]] Peer* peer_of(const std::string& routing_id, const PushKey& push, std::int64_t server_epoch);
  void send_held(const PushKey& push);
  void make_durable();
  void send_heartbeat();
  void check_lead();
  [[nodiscard]] ShardsHere here() const;
  [[nodiscard]] std::int64_t first_shard() const { return static_cast<std::int64_t>(loaded_.assignment.range.begin); }
  void send_until_acknowledged(const ShardsFailed& failed);
  void receive_over();
  void send(const std::string& routing_id, const ShardsToLead& message) {
    socket_->send(routing_id, {header_of(message)});
  }
  void send(const std::string& routing_id, const ShardsToWorker& message) {
    socket_->send(routing_id, {header_of(message)});
  }

  ShardServerOptions options_;
  std::string process_id_;
  std::optional<FrameSocket> socket_;
  int port_ = 0;
  std::optional<ShardLog> log_;
  ShardsLoaded loaded_;
  std::unique_ptr<ShardKeeper> keeper_;
  std::optional<Assignment> assigned_;  // by the current lead server
  std::string lead_;                    // the lead server's name at the socket; empty: not connected
  std::string lead_where_;
  std::map<WorkerId, Peer> peers_;
  std::int64_t greeting_ = 0;
  std::int64_t received_workers_ = 0;  // WorkerThere messages since LeadHello or ShardsLoaded
  std::vector<PushKey> pending_;       // parts to report once the log is durable
  Refusals refusals_;
  OwnClock clock_;
  Nanoseconds last_message_at_ = 0;
  Nanoseconds next_heartbeat_ = 0;
  std::optional<ShardsOver> over_;
  bool has_warned_of_greeting_ = false;
  std::int64_t malformed_ = 0;
};

}  // namespace sluice::ps
