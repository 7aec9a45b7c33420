// frame_socket: one end of the ZeroMQ connections of a parameter-server run. Messages arrive whole or not at all. A
// listening socket has many peers, each with a name that it chose; a connecting one has one, and reconnects.
//   - A message may be lost with its connection without notice. A connecting socket also loses unread messages: a
//     listening process that ends must stay until it is answered.
//   - Frames longer than the limit end the connection before memory is allocated for them. Messages with too many
//     frames, or without any, are dropped and counted.
//   - Connections of untrusted peers (trust()) may together send a few MiB of unfinished messages. Beyond that the
//     largest is closed (stranger_guard.h). A single empty frame is not a message: it begins a connection.
//   - Without keys nothing is encrypted and any process that reaches the port can send. A server without keys listens
//     only on its own machine. With keys (CURVE) only peers with the server's public key are accepted.
// Threads: one. Errors: ConfigError (an unknown, foreign or used address; invalid keys), PeerError (no more sockets).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/own_time.h"
#include "ps/net/frames.h"

namespace sluice::ps {

struct Keys {  // in ZeroMQ's text form, 40 characters; empty: no encryption
  std::string server_public;
  std::string server_secret;  // on the server only

  [[nodiscard]] bool encrypts() const { return !server_public.empty(); }
};

struct ServerAddress {
  std::string host;
  int port = 0;
};

class FrameSocket {
 public:
  // Limit for a connection that stalls in its handshake. Shorter than the smallest replicas.hang_timeout_s.
  static constexpr std::chrono::milliseconds kHandshake{4000};

  enum class Role { kListening, kConnecting };
  struct Limits {
    std::int64_t frame_bytes = std::int64_t{1} << 20;  // -1: unlimited
    std::size_t frames = 64;
    int unsent = 1000;  // queued messages per connection that are not sent yet
  };
  struct Received {
    std::string routing_id;  // the connecting side's name for itself; empty on that side
    Frames frames;
  };

  // name: a connecting socket's name for the other side; unused by a listening one.
  FrameSocket(Role role, const std::string& name, Limits limits, const Keys& keys = {});
  ~FrameSocket();

  // Listens on `host` only; port 0: a free one. Returns the port.
  [[nodiscard]] int listen(const std::string& host, int port);
  // Owns a socket that listens already. Returns the port.
  [[nodiscard]] int take_over(int listening);
  // Connects to the first address of `host` that accepts a message. Tries each in turn; retries an unknown name.
  void connect(const std::string& host, int port);

  // Never blocks. Returns false if there is no such peer or its queue is full; nothing was sent.
  bool send(const std::string& routing_id, const Frames& frames);
  // Returns if next() may have a message here or at one of `others`, if `wake` (a file descriptor; -1: unused) is
  // readable, or after `limit`. Returns after at most OwnClock::kReadEvery, so that a waiting loop reads its clock.
  void wait(std::chrono::nanoseconds limit, int wake = -1, const std::vector<FrameSocket*>& others = {});
  // Like wait(), but also returns if the connected server can accept more.
  void wait_to_send(std::chrono::nanoseconds limit, int wake);
  [[nodiscard]] std::optional<Received> next();
  // From now on this peer's messages may be as long as the limits allow. Requires a listening socket.
  void trust(const std::string& routing_id);
  [[nodiscard]] std::int64_t dropped() const { return dropped_; }

 private:
  struct Zmq;
  [[nodiscard]] std::optional<Frames> receive();
  void try_next_address();

  Role role_;
  Limits limits_;
  std::unique_ptr<Zmq> zmq_;
  std::int64_t dropped_ = 0;
  std::string host_;  // this and the members below: for a connecting socket
  int port_ = 0;
  std::string endpoint_;  // the current address in ZeroMQ's format
  std::size_t tries_ = 0;
  OwnClock time_;
  Nanoseconds next_try_ = 0;
  bool has_warned_ = false;
  bool was_connected_ = false;
};

[[nodiscard]] std::string unique_name();
[[nodiscard]] Keys make_keys();
// Returns the public key of a secret one. Throws ConfigError if `secret` is not a key.
[[nodiscard]] std::string public_key_of(const std::string& secret);

}  // namespace sluice::ps
