// stranger_guard: bounds the memory that strangers can take at a listening ZeroMQ socket. A stranger is a connection
// whose sender the owner of the socket does not trust (yet).
// Why it is needed:
// - ZeroMQ applies its limits to whole messages: it keeps the frames of a message that never ends without any bound.
// - It does not show these frames to the owner of the socket.
// - One byte on the wire costs up to 32 bytes of memory: empty frames.
// How it works: a thread asks the kernel how many bytes each stranger has sent since its last whole message. If all
// together exceed a limit, it closes the connections with the most.
// Threads: trust() and heard() from any. Errors: PeerError (no more descriptors).
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
  // Bytes of all strangers together, since their last whole messages. More are cut back after a while, in which a
  // trusted peer that has connected anew is recognised; far more are cut back at once.
  static constexpr std::int64_t kMostBytes = std::int64_t{2} << 20;
  static constexpr std::int64_t kFarTooManyBytes = std::int64_t{32} << 20;
  static constexpr std::size_t kMostStrangers = 256;

  // listening: outlives the guard.
  StrangerGuard(zmq::context_t& context, zmq::socket_t& listening);
  ~StrangerGuard();
  StrangerGuard(const StrangerGuard&) = delete;
  StrangerGuard& operator=(const StrangerGuard&) = delete;

  // All connections of the peer of this name, now and later, are no strangers.
  void trust(const std::string& routing_id);
  // A whole message of the peer has come over the connection with this descriptor.
  void on_message(int fd, const std::string& routing_id);

 private:
  struct Connection {
    // Its other end, which tells it from an earlier connection with the same descriptor.
    std::optional<comm::SocketAddress> remote;
    std::string routing_id;           // empty: nothing has come
    std::int64_t whole = 0;           // bytes that had come when its last whole message was read
    Nanoseconds last_message_at = 0;  // when that was; before: when it opened
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
  std::unique_ptr<Events> events_;  // the thread's
  comm::WakeUp stop_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<int, Connection> connections_;  // by descriptor
  std::set<std::string> trusted_;          // names of peers
  OwnClock clock_;
  Nanoseconds fitted_ = 0;  // when the strangers last were within their limit
  bool has_warned_ = false;

  std::thread thread_;
};

}  // namespace sluice::ps
