// control_mesh: a control connection between every two processes of a run, with heartbeats. Pauses of this process do
// not count. A guest, which wants to join the run, gets its number from one process and connects to all.
// The connections are not encrypted; each carries the run's token first. Threads: one at a time.
// Errors of the constructors, within LivenessOptions::connect_timeout: PeerError with the processes that did not
// connect; ConfigError as in socket_address.h.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/line_socket.h"
#include "comm/liveness_options.h"
#include "comm/membership_message.h"
#include "comm/world.h"
#include "core/own_time.h"

namespace sluice::comm {

// How the processes exchange texts while the run starts. get() blocks until the text is there; both may throw.
struct NoticeBoard {
  std::function<void(const std::string& key, const std::string& text)> put;
  std::function<std::string(const std::string& key)> get;
};

// How a guest reaches a process of the run: its control address, as SocketAddress::to_text().
struct Invitation {
  std::string address, token;
};

class ControlMesh {
 public:
  struct Event {
    enum class What { kMessage, kEnded, kSilent };
    What what = What::kMessage;
    int member = 0;
    MembershipMessage message = {};
  };

  // Returns when all are connected. wake: a file descriptor that ends step()'s wait when it is readable.
  ControlMesh(const World& world, const NoticeBoard& board, const LivenessOptions& options, int wake);
  // For a guest.
  ControlMesh(const World& world, const Invitation& invitation, const LivenessOptions& options, int wake);

  // These are fixed once constructed. Threads: any.
  [[nodiscard]] int self() const { return self_; }
  // The first one, or the one that welcomed this guest.
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] Invitation invitation() const { return {address_, token_}; }

  // Waits until something happens, at most until the next heartbeat. An end comes behind the messages before it, unless
  // the process has left. A silence may come several times.
  [[nodiscard]] std::vector<Event> step();

  void send(int member, const MembershipMessage& message);
  void send_to_all(const MembershipMessage& message);
  // Tells a guest its number, the processes that it must connect to and the group that it may join.
  void welcome(int guest, const Regroup& regroup);

  [[nodiscard]] bool knows(int member) const { return member == self_ || peers_.contains(member); }
  [[nodiscard]] const std::string& host_of(int member) const { return peers_.at(member).host; }
  // Since its last message.
  [[nodiscard]] std::chrono::nanoseconds silence_of(int member) const { return now_ - peers_.at(member).heard_at; }
  // Number of processes that have neither ended nor left.
  [[nodiscard]] int connected() const;

 private:
  using Nanoseconds = std::chrono::nanoseconds;
  using Connection = LineSocket::Connection;

  struct Peer {
    Connection connection;
    std::string host, address;
    Nanoseconds heard_at{0};
    bool has_ended = false, has_left = false;
  };

  ControlMesh(const World& world, const LivenessOptions& options, int wake);  // listens
  void connect_to(int member, const std::string& address);
  void wait_for_all();
  void take_welcome(const Event& event);
  void greet(const Connection& connection);
  [[nodiscard]] int number_for_guest() const;
  void check_clock();
  void handle(const LineSocket::Event& event, std::vector<Event>& events);
  void admit(const Connection& connection, const std::optional<MembershipMessage>& hello, std::vector<Event>& events);
  void judge(std::vector<Event>& events);
  [[nodiscard]] Nanoseconds hung_at(const Peer& peer) const;
  [[nodiscard]] Nanoseconds next_due() const;

  LivenessOptions options_;
  int wake_;
  int self_ = kNobody;
  Group group_ = {};
  std::string address_, token_;
  std::set<int> awaited_;  // that must still connect before the constructor returns
  LineSocket socket_;
  OwnTime clock_;
  Nanoseconds now_{0}, next_beat_{0};
  Nanoseconds ended_deadline_{0};  // after a pause: when ended connections are judged
  bool was_refused_ = false;       // a connection that this process has opened ended before it was greeted
  std::vector<Event> early_;       // that happened in the constructor
  std::map<int, Peer> peers_;      // [member]
  std::map<Connection, int> members_;
  std::map<Connection, Nanoseconds> strangers_;  // when each connected
};

}  // namespace sluice::comm
