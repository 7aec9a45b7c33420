// network_server: a parameter server and its workers as processes of their own: who is there, what each has been given,
// what came of its pushes.
// - Workers come, go, die and come back at any time. One that is silent for too long is given up: its lease goes back
//   to the ledger, the others go on. A push that was committed counts, whatever becomes of its worker.
// - A worker's samples are leased one step ahead, so that it reads the next ones while it waits for weights. The
//   weights are sent, unasked, as soon as it may begin.
// - A push counts once. One with numbers that are not finite ends the run.
// - Other servers may keep some of the shards (shard_server.h): workers send these their parts of a push, which counts
//   when this server has its own part and all others have said that they hold theirs.
// - With a journal a worker hears that its push was committed when the journal has it: by the answer, or by its next
// lease.
//   What commits a push, then, is this server's journal, and what commits an update is too: it is written after all
//   have prepared it and before any of them takes it.
// - While it waits for another server its workers, and the other servers, still get signs of life.
// Not here: what a push does to the weights (ps/server.h), when (ps/policy), what is recorded.
// Threads: one, which has to call next() again and again. Errors: ConfigError and PeerError of the socket; PeerError
// when no worker comes; AllWorkersLeft; DivergedError.
#pragma once

#include <functional>
#include <map>
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
#include "ps/net/messages.h"
#include "ps/net/partial_pushes.h"
#include "ps/net/push_assembly.h"
#include "ps/net/push_journal.h"
#include "ps/net/refusals.h"
#include "ps/net/shard_link.h"
#include "ps/net/update_queue.h"
#include "ps/push.h"
#include "ps/server.h"

namespace sluice::ps {

// What became of a worker.
struct WorkerEvent {
  enum class What { kJoined, kLeft, kFailed, kLost };
  WorkerId worker{};
  What what = What::kJoined;
  std::string where;            // its machine and process
  std::string why;              // empty where there is nothing to say
  std::string process_id = {};  // of one that has joined: its own name of its process (Hello)
};

// All workers left before the run was over. Also happens if a signal stops all processes of the run.
struct AllWorkersLeft : PeerError {
  using PeerError::PeerError;
};

struct NetworkOptions {
  std::string host = "127.0.0.1";
  int port = 0;        // 0: a free one
  int listening = -1;  // a socket that listens there already, which the server owns from then on; -1: there is none
  Keys keys;
  comm::Agreement agreement;         // that every worker must have too
  LinkCompression compression = {};  // likewise
  std::string run = {};              // Welcome::run
  std::string constants = {};        // Welcome::constants
  int most_workers = 4096;
  std::int64_t last_version = 0;                  // after it the run is over
  Nanoseconds heartbeat_interval = 500'000'000;   // between two signs of life
  Nanoseconds peer_timeout = 60'000'000'000;      // of a worker, before it is given up
  Nanoseconds connect_timeout = 300'000'000'000;  // until all workers have come, and with none at all
  Nanoseconds leave_grace = 1'000'000'000;        // from a worker's last word until nobody waits for it any more
  Nanoseconds drain_timeout = 5'000'000'000;      // at the end, until all workers have left
  std::function<Nanoseconds()> clock = [own = std::make_shared<OwnClock>()] { return own->now(); };  // of all limits
  std::function<bool(const ServerProgress& before, const ServerProgress& after)> wants_state = {};
  std::function<void(const WorkerEvent&)> on_event = {};
  PushJournal* journal = nullptr;       // is told of a push before its worker is; null: nothing outlives this server
  std::vector<ShardLink*> others = {};  // as ServerOptions::others; each has its shards
  std::vector<CommittedPush> committed_before = {};  // by an earlier server, and in no update yet
};

class NetworkServer {
 public:
  // Listens. The server and the ledger outlive it; nobody has joined the one or leased anything from the other.
  NetworkServer(Server& server, data::Ledger& ledger, NetworkOptions options);
  ~NetworkServer();
  NetworkServer(const NetworkServer&) = delete;
  NetworkServer& operator=(const NetworkServer&) = delete;

  [[nodiscard]] int port() const { return port_; }
  // Serves until an update is ready to be told, at most for so long. Updates come in order and none is left out.
  [[nodiscard]] std::optional<NetworkUpdate> next(Nanoseconds limit);
  [[nodiscard]] bool is_over() const { return is_over_ && made_.empty(); }
  // Ends the run, also after an error: tells the workers and waits up to `drain_timeout` until all have heard it and
  // left. next() still hands out updates that were made. Other servers are told only where the run is done and has no
  // journal: else their state may be wanted, or their logs until all is saved.
  void end(const Over& over);
  // Where other servers are to be told of that later: shows them that this one lives, for so long. False: there are
  // none.
  [[nodiscard]] bool keep_alive_for_others(Nanoseconds limit);
  // Instead of serving: for so long who comes is told why the run does not begin. Those who were in it before wait for
  // a better start.
  void reject_all(const Over& over, Nanoseconds limit);
  // The journal is from here on of what follows the server's weights of now. Requires: there is one.
  void begin_journal();
  [[nodiscard]] std::int64_t malformed() const { return malformed_ + socket_.dropped(); }

 private:
  struct Peer {
    std::string routing_id;  // its name at the socket
    std::string process_id;
    std::string where;
    std::int64_t batch = 1;  // samples of a lease
    int incarnation = 0;
    Nanoseconds last_message_at = 0;
    std::optional<data::Lease> lease;  // of the step that it runs or will run next
    std::int64_t version = kNone;      // of the weights that it has been given for it
    std::int64_t pushed = 0;           // sequence of the last push that was committed
    PullCompressor pull;               // of the shards here
    PushAssembly ahead;                // of its next push
    // It has said that it leaves. Who stops a whole run stops its server, too, and then no update is made without it.
    std::optional<Nanoseconds> leaves_at;
  };
  // A push that waits for its update.
  struct Waiting {
    PushRecord record;
    data::Lease lease;
    PushScores scores;
    PushTimes times;
    bool is_timed = false;  // its worker has said how long it took to send
  };
  using Peers = std::map<WorkerId, Peer>;

  void step(Nanoseconds until);
  void handle(FrameSocket::Received received);
  void warn_of_part();
  void greet(const std::string& routing_id, const Hello& hello);
  [[nodiscard]] std::string refusal_of(const std::string& routing_id, const Hello& hello) const;
  void refuse(const std::string& routing_id, const Hello& hello, const std::string& why);
  void admit(const std::string& routing_id, const Hello& hello);
  void take(Peers::value_type& worker, const PushAhead& ahead, const Frames& frames);
  void take(Peers::value_type& worker, const PushMade& push, const Frames& frames);
  [[nodiscard]] std::optional<Tensors> tensors_of(const PushMade& push, const Frames& frames) const;
  [[nodiscard]] static std::optional<PushAnswer> rejection_of(const Peers::value_type& worker, const PushRecord& push);
  void count(Peers::value_type& worker, const PushMade& push, const Tensors& tensors);
  [[nodiscard]] bool others_hold(const Peers::value_type& worker, const PushKey& push) const;
  void complete_partial_pushes();
  [[noreturn]] static void throw_not_finite(const Peers::value_type& worker, std::int64_t sequence);
  void send_to_others(const WorkerThere& there);
  [[nodiscard]] Welcome welcome_of(const Hello& hello, const Peer& peer) const;
  [[nodiscard]] std::vector<FrameSocket*> other_sockets() const;
  void wait(Nanoseconds limit);
  [[nodiscard]] bool fits(const Peer& peer, const PushMade& push) const;
  void restore_push(CommittedPush push);
  [[nodiscard]] static CommittedPush as_committed(const Waiting& push, const Tensors& tensors);
  void write_down(const Waiting& push, const Tensors& tensors);
  void write_down(const UpdateRecord& decided);
  void acknowledge(const Peer& peer, std::int64_t sequence);
  void make_durable();
  [[nodiscard]] bool is_pending(WorkerId worker, const Peer& peer) const;
  void take(Peers::value_type& worker, const PushSent& sent, const Frames& frames);
  void take(Peers::value_type& worker, const WorkerHeartbeat& heartbeat, const Frames& frames);
  void take(Peers::value_type& worker, const WorkerAgain& again, const Frames& frames);
  void take(Peers::value_type& worker, const Leaving& leave_grace, const Frames& frames);
  void take(Peers::value_type& worker, const Failed& failed, const Frames& frames);
  void take(Peers::value_type&, const Hello&, const Frames&) {}  // greet()
  void remove_worker(WorkerId worker, WorkerEvent::What what, const std::string& why);

  void make_updates();
  void report_update(UpdateRecord done, const ServerProgress& before);
  void begin_ready_workers();
  void give_next_lease(Peers::value_type& worker);
  void give_lease(Peer& peer);
  void send_lease(const Peer& peer);
  void give_weights(Peers::value_type& to, std::int64_t version, bool is_again = false);
  void send_heartbeat();
  void keep_alive();
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
  std::int64_t server_epoch_;  // tells what is said of workers to other servers from what an earlier one has said
  FrameSocket socket_;
  int port_ = 0;
  Peers peers_;                                 // of the workers that are there
  std::map<WorkerId, int> first_incarnations_;  // of each worker, since this server began
  PartialPushes partial_;
  std::map<WorkerId, Waiting> waiting_;
  std::vector<PushKey> pending_;  // pushes that count once the journal is durable
  UpdateQueue made_;
  Nanoseconds begin_;
  Nanoseconds next_heartbeat_ = 0;
  Nanoseconds drained_at_ = 0;  // who had said anything by then has been heard
  Nanoseconds empty_since_;
  std::optional<Nanoseconds> open_since_;  // training has begun
  bool is_over_ = false;
  bool was_over_ = false;  // from the beginning
  Over why_over_;
  bool has_sent_over_ = false;
  // Peers that wait until a worker's number is free, or that were turned away. Once told of the end they say Leaving.
  std::set<std::string> rivals_;
  bool last_one_left_ = false;  // by itself
  Refusals refusals_;
  bool has_warned_of_part_ = false;
  std::int64_t malformed_ = 0;
};

}  // namespace sluice::ps
