// network_server: server 0 of a run whose workers are separate processes (docs/explanation/ps_protocol.md). It passes
// messages between its parts: members.h (workers), push_intake.h, waiting_pushes.h, update_queue.h, step_sender.h.
//   - The lease of a removed worker goes back to the ledger. A committed push counts whatever happens to its worker.
//   - A worker's samples are leased one step ahead, so that it reads the next ones while it waits for weights.
//   - With a journal a worker learns of a commit only after the journal has it: by the answer, or by its next lease. An
//     update is written to the journal after all servers have prepared it and before any of them commits it.
//   - While the server waits for another one, its workers and the other servers still receive heartbeats.
// ps/server.h applies pushes to the weights; ps/policy decides when.
// Threads: one, which must call next() repeatedly. Errors: ConfigError and PeerError of the socket; PeerError if no
// worker arrives; AllWorkersLeft; DivergedError.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/own_time.h"
#include "data/ledger.h"
#include "ps/net/frame_socket.h"
#include "ps/net/members.h"
#include "ps/net/messages.h"
#include "ps/net/push_intake.h"
#include "ps/net/push_journal.h"
#include "ps/net/refusals.h"
#include "ps/net/shard_link.h"
#include "ps/net/step_sender.h"
#include "ps/net/update_queue.h"
#include "ps/net/waiting_pushes.h"
#include "ps/server.h"

namespace sluice::ps {

struct WorkerEvent {
  enum class What { kJoined, kLeft, kFailed, kLost };
  WorkerId worker{};
  What what = What::kJoined;
  std::string where;            // machine and process
  std::string why;              // reason; may be empty
  std::string process_id = {};  // kJoined: its Hello::process_id
};

// Also happens if a signal stops all processes of the run.
struct AllWorkersLeft : PeerError {
  using PeerError::PeerError;
};

struct NetworkOptions {
  std::string host = "127.0.0.1";
  int port = 0;        // 0: a free one
  int listening = -1;  // a listening socket that the server takes over; -1: it makes its own
  Keys keys;
  comm::Agreement agreement;         // every worker must have the same
  LinkCompression compression = {};  // every worker must have the same
  std::string run = {};
  std::string constants = {};
  int most_workers = 4096;
  std::int64_t last_version = 0;  // the run is over after this version
  Nanoseconds heartbeat_interval = 500'000'000;
  Nanoseconds peer_timeout = 60'000'000'000;      // silence after which a worker is removed
  Nanoseconds connect_timeout = 300'000'000'000;  // until all workers have joined, and with no worker at all
  Nanoseconds leave_grace = 1'000'000'000;        // from a worker's Leaving to its removal
  Nanoseconds drain_timeout = 5'000'000'000;      // at the end, until all workers have left
  std::function<Nanoseconds()> clock = [own = std::make_shared<OwnClock>()] { return own->now(); };  // for all limits
  std::function<bool(const ServerProgress& before, const ServerProgress& after)> wants_state = {};
  std::function<void(const WorkerEvent&)> on_event = {};
  PushJournal* journal = nullptr;  // records a push before its worker is answered; null: nothing outlives this server
  std::vector<ShardLink*> others = {};               // same as ServerOptions::others; each has its shards
  std::vector<CommittedPush> committed_before = {};  // by an earlier server, and not in an update yet
};

class NetworkServer {
 public:
  // Listens. `server` and `ledger` must outlive this object. Requires that no worker has joined and nothing is leased.
  NetworkServer(Server& server, data::Ledger& ledger, NetworkOptions options);
  ~NetworkServer();

  [[nodiscard]] int port() const { return port_; }
  // Serves for at most `limit` or until an update is ready. Returns all updates in order.
  [[nodiscard]] std::optional<NetworkUpdate> next(Nanoseconds limit);
  [[nodiscard]] bool is_over() const { return is_over_ && made_.empty(); }
  // Ends the run, also after an error, and waits up to `drain_timeout` until all workers have left. next() still
  // returns finished updates. Shard servers are ended only if the run is complete and has no journal: otherwise their
  // state or their logs may still be needed.
  void end(const Over& over);
  // Sends heartbeats to shard servers that end() has not ended, for `limit`. Returns false if there are none.
  [[nodiscard]] bool keep_alive_for_others(Nanoseconds limit);
  // Instead of serving: sends workers that connect the reason why the run does not begin. Workers that were in the run
  // before get no answer, so that they wait for the next start.
  void reject_all(const Over& over, Nanoseconds limit);
  // The journal then continues from the server's current weights. Requires a journal.
  void begin_journal() { waiting_.begin_journal(server_); }
  [[nodiscard]] std::int64_t malformed() const { return malformed_ + intake_.malformed() + socket_.dropped(); }

 private:
  void step(Nanoseconds until);
  void wait(Nanoseconds limit);
  void keep_alive();
  void send_heartbeat();
  void on_message(FrameSocket::Received received);
  void on_foreign_message(const Frame& header);
  void dispatch(Member& member, const FromWorker& message, const Frames& frames);

  void on_push_made(Member& member, const PushMade& push, const Frames& frames);
  void on_push_sent(const Member& member, const PushSent& sent);
  void on_again(Member& member, const WorkerAgain& again);
  void commit_whole_pushes();
  void commit(Member& member, const OwnPart& push);
  void acknowledge(const Member& member, std::int64_t sequence);
  void make_durable();
  void make_updates();
  void report_update(UpdateRecord done, const ServerProgress& before);
  void begin_ready_workers();
  void give_next_lease(Member& member);

  void on_hello(const std::string& routing_id, const Hello& hello);
  [[nodiscard]] std::string refusal_of(const std::string& routing_id, const Hello& hello);
  [[nodiscard]] Welcome welcome_of(const Hello& hello, const Member& member) const;
  void admit(const std::string& routing_id, const Hello& hello);
  void on_heartbeat(const Member& member, const WorkerHeartbeat& heartbeat);
  void on_leaving(Member& member);
  void on_failed(const Member& member, const Failed& failed);
  void remove_worker(WorkerId worker, WorkerEvent::What what, const std::string& why);
  void remove_lost_workers();
  void remove_leaving_workers();

  void check_for_end();
  void send(const std::string& routing_id, const FromServer& message) {
    socket_.send(routing_id, {header_of(message)});
  }
  [[nodiscard]] Nanoseconds now() const { return options_.clock(); }

  Server& server_;
  data::Ledger& ledger_;
  NetworkOptions options_;
  std::int64_t server_epoch_;  // distinguishes messages to other servers from those of an earlier server 0
  FrameSocket socket_;
  int port_ = 0;
  Nanoseconds begin_;
  Nanoseconds next_heartbeat_ = 0;
  Members members_;
  PushIntake intake_;
  WaitingPushes waiting_;
  UpdateQueue made_;
  StepSender steps_;
  std::optional<Nanoseconds> open_since_;  // when training began
  bool is_over_ = false;
  bool was_over_ = false;  // at construction
  Over why_over_;
  bool has_sent_over_ = false;
  // Peers that wait for a worker's number, or that were rejected. They answer Over with Leaving.
  std::set<std::string> rivals_;
  Refusals refusals_;
  bool has_warned_of_part_ = false;
  std::int64_t malformed_ = 0;
};

}  // namespace sluice::ps
