// shard_server: a server that keeps some of the shards and decides nothing, as a process of its own. Workers push their
// parts to it and get their weights from it, at its own speed; the lead server (network_server.h) tells it who they
// are, when an update is made and of which pushes. It knows no policy, no data and no learning rate.
// - It begins with what the lead server gives it. With a log it outlives its own death: what it had said that it
//   holds, and every step that it has done, is there when it is started again, and the run goes on.
// - Only workers that it was told of are heard, and only the newest part of each is kept.
// - Without a word of the lead server for too long it ends.
// Threads: one, which calls next() again and again. Errors: ConfigError and PeerError of the socket; PeerError where
// nobody leads; StorageError, CheckpointError of the log.
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
  int port = 0;    // 0: a free one
  int number = 1;  // of this server, for messages
  Keys keys;
  comm::Agreement agreement;         // that the lead server must have too
  LinkCompression compression = {};  // likewise
  optim::OptimizerOptions optimizer;
  int threads = 1;               // that work on its shards at once
  std::filesystem::path folder;  // of its log; empty: none
  storage::Outlives outlives = storage::Outlives::kProcess;
  Nanoseconds heartbeat_interval = 500'000'000;
  Nanoseconds peer_timeout = 60'000'000'000;      // of the lead server
  Nanoseconds connect_timeout = 300'000'000'000;  // until there is one; with a log also until it comes back
  Nanoseconds drain_timeout = 30'000'000'000;     // after a failure, until the lead, which may be busy, has heard of it
};

class ShardServer {
 public:
  explicit ShardServer(ShardServerOptions options);
  ShardServer(const ShardServer&) = delete;
  ShardServer& operator=(const ShardServer&) = delete;

  [[nodiscard]] int port() const { return port_; }
  // Serves for so long, or until the run is over.
  void next(Nanoseconds limit);
  // How the run has ended; nothing: it has not.
  [[nodiscard]] const std::optional<ShardsOver>& over() const { return over_; }
  // Asks the lead server to end the run, which first takes the weights that are here: serve on until over(). May be
  // asked again, as a message may be lost.
  void ask_to_stop(const InterruptedError& why);
  // Tells the lead server that this one ends, and why; returns when the lead has ended the run, has gone, or has not
  // answered within `drain_timeout`. Afterwards only over() and keeper() may be called.
  void fail(const Error& error);

  [[nodiscard]] bool has_lead() const { return !lead_.empty(); }
  [[nodiscard]] const ShardKeeper* keeper() const { return keeper_.get(); }  // null: it has no shards yet
  [[nodiscard]] std::int64_t malformed() const { return malformed_ + (socket_ ? socket_->dropped() : 0); }

 private:
  struct Peer {
    std::string routing_id;
    std::int64_t incarnation = 0;
    std::int64_t server_epoch = 0;  // in which that incarnation was counted
    std::int64_t version = kNone;   // of the weights that it began with last
    PullCompressor pull;
    PushAssembly ahead;  // of its next push
  };

  void listen(const FrameSocket::Limits& limits);
  [[nodiscard]] FrameSocket::Limits limits_of(const Assignment& assignment) const;
  void handle(const FrameSocket::Received& received);
  void drop();
  void warn_of_greeting(const Hello& hello);
  void take(const std::string& routing_id, const LeadHello& hello, const Frames& frames);
  [[nodiscard]] std::string refusal_of(const LeadHello& hello) const;
  void take(const std::string& routing_id, const ShardsLoaded& loaded, const Frames& frames);
  void take(const std::string& routing_id, const WorkerThere& there, const Frames& frames);
  void take(const std::string& routing_id, const StepAsked& asked, const Frames& frames);
  void take(const std::string& routing_id, const PartAsked& asked, const Frames& frames);
  void take(const std::string& routing_id, const StateAsked& asked, const Frames& frames);
  void take(const std::string& routing_id, const LeadHeartbeat& heartbeat, const Frames& frames);
  void take(const std::string& routing_id, const ShardsOver& over, const Frames& frames);
  void take(const std::string& routing_id, const PushAhead& ahead, const Frames& frames);
  void take(const std::string& routing_id, const PartMade& part, const Frames& frames);
  void take(const std::string& routing_id, const PartHeartbeat& heartbeat, const Frames& frames);

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
  ShardsLoaded loaded_;  // which run, and which shards
  std::unique_ptr<ShardKeeper> keeper_;
  std::optional<Assignment> assigned_;  // by the lead server that is there
  std::string lead_;                    // its name at the socket; empty: there is none
  std::string lead_where_;
  std::map<WorkerId, Peer> peers_;
  std::int64_t greeting_ = 0;          // of the lead server
  std::int64_t received_workers_ = 0;  // WorkerThere taken since LeadHello or ShardsLoaded
  std::vector<PushKey> pending_;       // parts that are held once the log is durable
  Refusals refusals_;
  OwnClock clock_;
  Nanoseconds last_message_at_ = 0;  // of the lead
  Nanoseconds next_heartbeat_ = 0;
  std::optional<ShardsOver> over_;
  bool has_warned_of_greeting_ = false;
  std::int64_t malformed_ = 0;
};

}  // namespace sluice::ps
