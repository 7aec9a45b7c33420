// stranger_guard: bounds the memory that strangers can use at a listening ZeroMQ socket. A stranger is a connection
// whose sender the owner of the socket does not trust (yet). ZeroMQ's limits count whole messages: it keeps the frames
// of an endless message without bound and does not show them to the owner. With empty frames, one byte on the wire
// costs up to 32 bytes of memory.
// A thread asks the kernel how many bytes each stranger has sent since its last whole message, and closes the largest.
// Threads: trust() and on_message() from any. Errors: PeerError (no more descriptors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "comm/socket_address.h"
#include "comm/wake_up.h"
#include "core/clock.h"
#include "core/own_time.h"

namespace zmq {
class context_t;
class socket_t;
}  // namespace zmq

namespace sluice::ps {

class StrangerGuard {
 public:
  // Limits of the bytes of all strangers since their last whole messages. Above kMostBytes connections are closed after
  // a delay, in which a reconnected trusted peer is recognized; above kFarTooManyBytes they are closed at once.
  static constexpr std::int64_t kMostBytes = std::int64_t{2} << 20;
  static constexpr std::int64_t kFarTooManyBytes = std::int64_t{32} << 20;
  static constexpr std::size_t kMostStrangers = 256;

  StrangerGuard(zmq::context_t& context, zmq::socket_t& listening);
  ~StrangerGuard();

  void trust(const std::string& routing_id);  // all connections of this peer, present and future
  // A whole message of the peer has arrived over the connection with this descriptor.
  void on_message(int fd, const std::string& routing_id);

 private:
  struct Connection {
    std::optional<comm::SocketAddress> remote;  // distinguishes it from an earlier one with the same descriptor
    std::string routing_id;                     // empty: no message has arrived
    std::int64_t whole = 0;                     // bytes received when its last whole message was read
    Nanoseconds last_message_at = 0;            // of its last whole message; before the first: when it opened
    bool is_trusted = false;
  };
  struct Events;

  void run();
  void take_events();
  Connection& connection_at(int fd);
  [[nodiscard]] bool has_strangers();
  void check_strangers();
  void close(int fd, std::int64_t bytes);

  zmq::socket_t& listening_;
  std::unique_ptr<Events> events_;  // used by the thread only
  comm::WakeUp stop_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<int, Connection> connections_;  // [descriptor]
  std::set<std::string> trusted_;          // routing ids
  OwnClock clock_;
  Nanoseconds fitted_ = 0;  // when the strangers were last within their limit
  bool has_warned_ = false;

  std::thread thread_;
};

}  // namespace sluice::ps
