// frame_socket: one end of the connections of a parameter-server run (ZeroMQ): messages of several frames, whole or not
// at all. A socket that listens has many peers and tells them apart by the names that they gave themselves; one that
// connects has one peer, and connects again and again.
// - A message may be lost with its connection, unseen; who needs it asks for it (messages.h). One that connects loses
//   also what has come and was not read yet: who listens and ends stays until it is answered.
// - Frames longer than the limit end the connection before any memory is taken for them; messages of more frames, or
//   of none, are dropped and counted.
// - Connections of peers that are not trusted (trust()) may together send a few MiB that are no whole message yet; the
//   one with the most is closed (stranger_guard.h). A single empty frame is no message: it begins a connection.
// - Without keys nothing is encrypted and anybody who reaches the port can speak: a server without keys listens on the
//   machine itself only. With them (CURVE) whoever does not have the server's public key is not heard.
// Not here: what messages mean. Threads: one. Errors: ConfigError (the address of one that listens is not
// known, not ours, in use; keys that are none), PeerError (no more sockets).
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

// Both in ZeroMQ's own text form, 40 characters; empty: no encryption.
struct Keys {
  std::string server_public;
  std::string server_secret;  // the server's only

  [[nodiscard]] bool encrypts() const { return !server_public.empty(); }
};

struct ServerAddress {
  std::string host;
  int port = 0;
};

class FrameSocket {
 public:
  // Until a connection that stalls in its handshake is given up: less than replicas.hang_timeout_s can be.
  static constexpr std::chrono::milliseconds kHandshake{4000};

  enum class Role { kListening, kConnecting };
  struct Limits {
    std::int64_t frame_bytes = std::int64_t{1} << 20;  // -1: any
    std::size_t frames = 64;
    int unsent = 1000;  // messages that wait in memory to leave, of each connection
  };
  struct Received {
    std::string routing_id;  // the connecting side's name for itself; empty on that side
    Frames frames;           // at least one
  };

  // name: of a socket that connects, for the other side; unused in one that listens.
  FrameSocket(Role role, const std::string& name, Limits limits, const Keys& keys = {});
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  // Listens on `host` and nowhere else; port 0: a free one. Returns the port.
  [[nodiscard]] int listen(const std::string& host, int port);
  // At a socket that listens already, which is owned from then on. Returns the port.
  [[nodiscard]] int take_over(int listening);
  // To the first address of `host` that answers: each of them is tried in turn until one has taken a message, and a
  // name that is not known yet is asked for again.
  void connect(const std::string& host, int port);

  // Never blocks. False: there is no such peer, or too much waits for it; nothing was sent.
  bool send(const std::string& routing_id, const Frames& frames);
  // Returns when next() may have something, here or at one of the others, `wake` (a file descriptor; -1: none) can be
  // read, or the time is over; after OwnClock::kReadEvery at the latest, so that who waits in a loop reads its clock.
  void wait(std::chrono::nanoseconds limit, int wake = -1, const std::vector<FrameSocket*>& others = {});
  // Likewise, and when the server that this socket is connected to takes more.
  void wait_to_send(std::chrono::nanoseconds limit, int wake);
  [[nodiscard]] std::optional<Received> next();
  // From here on this peer's messages may be as long as the limits say. Requires: this socket listens.
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
  // Of a socket that connects.
  std::string host_;
  int port_ = 0;
  std::string endpoint_;  // the address that is tried, as ZeroMQ writes it
  std::size_t tries_ = 0;
  OwnClock time_;
  Nanoseconds next_try_ = 0;
  bool has_warned_ = false;
  bool was_connected_ = false;
};

// For a socket, or a process, that nobody else has.
[[nodiscard]] std::string unique_name();
// A new pair for a server, secret and public.
[[nodiscard]] Keys make_keys();
// The public key of a secret one; ConfigError where it is none.
[[nodiscard]] std::string public_key_of(const std::string& secret);

}  // namespace sluice::ps
