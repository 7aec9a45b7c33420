// liveness_watch: one process's view of which processes of the run are alive (thread: liveness.h). Rank 0 is the
// neighbour of all other ranks; neighbours exchange heartbeats. A process is lost if its connection ends, if it is
// silent for too long, or if a neighbour reports it. The process that detects a loss first reports it to its
// neighbours; later losses are ignored. Rank 0 drops connections without the run's token. Threads: one at a time.
// Errors: those of LineSocket, during the start.
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
  // wake: a file descriptor that ends step()'s wait when it is readable.
  LivenessWatch(World world, const LivenessOptions& options, int wake);

  // Rank 0: listens. Returns one line with the port and the token, which the other ranks need to connect.
  [[nodiscard]] std::string open();
  // Other ranks: connects to rank 0. where: the line that rank 0's open() returned.
  void approach(const std::string& where);

  void step();

  [[nodiscard]] bool is_complete() const { return complete_; }          // all processes are connected
  [[nodiscard]] bool is_connected() const { return !peers_.empty(); }   // other ranks: connected to rank 0
  [[nodiscard]] std::chrono::nanoseconds time() const { return now_; }  // since the start, without pauses
  [[nodiscard]] std::vector<int> missing() const;                       // rank 0: ranks that are not connected yet

  // This process ends with an error, or (kStopped) because it was asked to stop.
  void fail(const std::string& why, LostProcess::How how = LostProcess::How::kFailed);
  void leave();

  // The first loss, once the neighbours have acknowledged it or their time to do so has passed. Null before.
  [[nodiscard]] const LostProcess* lost() const;
  // True once the neighbours have acknowledged that this process leaves, or their time to do so has passed.
  [[nodiscard]] bool has_left() const { return has_sent_leave_ && is_acknowledged(); }

 private:
  using Nanoseconds = std::chrono::nanoseconds;
  using Connection = LineSocket::Connection;

  struct Peer {
    int rank = 0;
    std::string host;
    Nanoseconds last_message_at{0};
    bool ended = false;
    bool left = false;
    bool acknowledged = true;  // it has received our last kLost or kLeave
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
  [[nodiscard]] Nanoseconds hung_at(const Peer& peer) const;
  [[nodiscard]] Nanoseconds next_due() const;  // the next heartbeat, or when a silent peer counts as hung
  void judge_silent();
  void drop_strangers();
  void send_leave_when_due();
  void send_heartbeat_when_due();
  void send_to_all(const ControlMessage& message, const Peer* except);
  void send(const Connection& connection, const ControlMessage& message);

  World world_;
  LivenessOptions options_;
  int wake_;
  std::string host_;
  std::string token_;
  std::string leader_;  // other ranks: rank 0's host
  LineSocket socket_;
  OwnTime clock_;
  Nanoseconds now_{0};
  Nanoseconds next_heartbeat_{0};
  Nanoseconds ended_deadline_{0};        // after a pause: when ended connections are judged
  Nanoseconds acknowledge_deadline_{0};  // when a missing acknowledgement is no longer awaited
  Nanoseconds drain_deadline_{0};        // rank 0: when it stops waiting for others to leave
  std::map<Connection, Peer> peers_;
  std::map<Connection, Nanoseconds> strangers_;  // rank 0: when each connected
  std::vector<Connection> ended_;                // connections to judge, in the order of their ends
  std::optional<LostProcess> lost_;
  bool complete_ = false;
  bool is_leaving_ = false;
  bool has_sent_leave_ = false;
};

}  // namespace sluice::comm
