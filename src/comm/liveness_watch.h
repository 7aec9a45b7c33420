// liveness_watch: who of a run's processes lives, as one of them sees it: a star of connections with rank 0 in the
// middle. Every process sends its neighbours (rank 0: all; the others: rank 0) a heartbeat, and takes for lost whose
// connection ends, who is silent for too long, and whom a neighbour reports. Whoever learns of a loss first tells its
// neighbours; later ones are not looked at: the processes that end because of the first are none.
// Not here: the thread in which this runs, and the callers that wait (liveness.h).
// Strangers: what does not begin with the run's token is dropped, and a connection that says nothing within
// LivenessOptions::peer_timeout, too.
// Threads: one at a time.
// Errors: as LineSocket's, while it starts.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/control_message.h"
#include "comm/line_socket.h"
#include "comm/liveness_options.h"
#include "comm/lost_process.h"
#include "comm/world.h"
#include "core/own_time.h"

namespace sluice::comm {

class LivenessWatch {
 public:
  // wake: a file descriptor that ends step()'s wait when it can be read.
  LivenessWatch(World world, const LivenessOptions& options, int wake);

  // Rank 0: listens. What the others need to find and to convince it, one line.
  [[nodiscard]] std::string open();
  // The others: connects to the rank 0 that has said `where`.
  void approach(const std::string& where);

  // Waits for at most a heartbeat, then does what is due.
  void step();

  [[nodiscard]] bool is_complete() const { return complete_; }          // every process is connected
  [[nodiscard]] bool is_connected() const { return !peers_.empty(); }   // the others: rank 0 is
  [[nodiscard]] std::chrono::nanoseconds time() const { return now_; }  // since the start, without pauses
  [[nodiscard]] std::vector<int> missing() const;                       // rank 0: who is not connected yet

  // This process ends with an error, or (kStopped) because it was asked to.
  void fail(const std::string& why, LostProcess::How how = LostProcess::How::kFailed);
  // This process ends as planned; rank 0 when all others have left or its drain timeout has passed.
  void leave();

  // The first loss, once the neighbours have heard of it, or had time to. Null: none.
  [[nodiscard]] const LostProcess* lost() const;
  // The neighbours have heard that this process leaves, or had time to.
  [[nodiscard]] bool has_left() const { return has_sent_leave_ && is_acknowledged(); }

 private:
  using Nanoseconds = std::chrono::nanoseconds;
  using Connection = LineSocket::Connection;

  // A process at the other end of a connection.
  struct Peer {
    int rank = 0;
    std::string host;
    Nanoseconds last_message_at{0};
    bool ended = false;        // its connection
    bool left = false;         // as planned
    bool acknowledged = true;  // it has heard our last loss or leave
  };

  [[nodiscard]] bool leads() const { return world_.rank == 0; }
  [[nodiscard]] bool is_acknowledged() const;
  [[nodiscard]] bool all_left() const;
  void check_clock();
  void handle(const LineSocket::Event& event);
  void on_opened(const Connection& connection);
  void on_ended(const Connection& connection);
  void on_message(const Connection& connection, Peer& peer, const ControlMessage& message);
  void admit(const Connection& connection, const std::optional<ControlMessage>& hello);
  void welcome_all();
  void take_report(const LostProcess& lost, Peer& from);
  void report(LostProcess lost, const Peer* from);
  void judge_ended();
  [[nodiscard]] Nanoseconds hung_at(const Peer& peer) const;  // by then it counts as hung
  [[nodiscard]] Nanoseconds next_due() const;                 // a heartbeat, or the end of a silence
  void judge_silent();
  void drop_strangers();
  void send_leave_when_due();
  void send_heartbeat_when_due();
  void send_to_all(const ControlMessage& message, const Peer* except);
  void send(const Connection& connection, const ControlMessage& message);

  World world_;
  LivenessOptions options_;
  int wake_;
  std::string host_;    // of this process
  std::string token_;   // of the run
  std::string leader_;  // the others: rank 0's host
  LineSocket socket_;
  OwnTime clock_;
  Nanoseconds now_{0};
  Nanoseconds next_heartbeat_{0};
  Nanoseconds ended_deadline_{0};        // after a pause: when ended connections are looked at
  Nanoseconds acknowledge_deadline_{0};  // when it no longer matters that a neighbour has not heard
  Nanoseconds drain_deadline_{0};        // rank 0 leaves: when it no longer waits
  std::map<Connection, Peer> peers_;
  std::map<Connection, Nanoseconds> strangers_;  // rank 0: when they came
  std::vector<Connection> ended_;                // not judged yet, in order
  std::optional<LostProcess> lost_;
  bool complete_ = false;
  bool is_leaving_ = false;
  bool has_sent_leave_ = false;
};

}  // namespace sluice::comm
