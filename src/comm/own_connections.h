// own_connections: the TCP connections that a library opens in this process. Gloo cannot cancel an operation; shutting
// its connections down makes every operation on them fail, here and at their other ends. Linux only.
// Threads: any. Errors: none; a connection that cannot be found is left as it is.
#pragma once

#include <mutex>
#include <set>
#include <vector>

namespace sluice::comm {

class OwnConnections {
 public:
  // Connections from or to this port are another user's, and never added.
  void leave_out(int port);
  // Adds the connections that appear while `action` runs. Another thread's connections may be among them.
  template <typename Action>
  auto note(const Action& action) {
    const std::set<Connection> before = open_now();
    auto made = action();
    add_since(before);
    return made;
  }
  // Shuts down the connections noted so far, and later ones when they are noted.
  void shut_down();

 private:
  struct Connection {
    int descriptor = -1;
    int port = 0, port_of_other_end = 0;  // tell whether the descriptor has another meaning by now
    auto operator<=>(const Connection&) const = default;
  };
  [[nodiscard]] static std::set<Connection> open_now();
  void add_since(const std::set<Connection>& before);

  std::mutex mutex_;
  bool is_shut_down_ = false;
  std::set<Connection> connections_;
  std::set<int> left_out_;
};

}  // namespace sluice::comm
