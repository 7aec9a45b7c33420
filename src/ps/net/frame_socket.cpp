#include "ps/net/frame_socket.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <zmq.hpp>

#include "comm/socket_address.h"
#include "core/error.h"
#include "core/log.h"
#include "ps/net/stranger_guard.h"

namespace sluice::ps {
namespace {

constexpr int kLinger = 5000;         // milliseconds that closing may take to send the last messages
constexpr int kListeningThreads = 4;  // I/O threads of a listening socket; each connection is served by one of them
constexpr int kUnread = 64;           // received messages per connection that are queued in memory
constexpr std::int64_t kSeal = 64;    // bytes that encryption adds to a frame, rounded up
constexpr int kReconnect = 100;       // milliseconds between two attempts
// How long each address of a host is tried, and the pause before an unknown name is looked up again.
constexpr Nanoseconds kTry = 1'000'000'000;

zmq::message_t message_of(const Frame& frame) {
  constexpr std::size_t kSmall = 1024;  // copying costs less than sharing
  if (frame.bytes.size() <= kSmall) return {frame.bytes.data(), frame.bytes.size()};
  auto* const owner = new std::shared_ptr<const void>(frame.owner);
  const auto release = [](void*, void* hint) { delete static_cast<std::shared_ptr<const void>*>(hint); };
  return {const_cast<char*>(frame.bytes.data()), frame.bytes.size(), release, owner};
}

Frame frame_of_message(zmq::message_t message) {
  auto owner = std::make_shared<zmq::message_t>(std::move(message));
  const std::string_view bytes(static_cast<const char*>(owner->data()), owner->size());
  return {bytes, std::move(owner)};
}

void set_keys(zmq::socket_t& socket, FrameSocket::Role role, const Keys& keys) {
  if (!keys.encrypts()) return;
  if (role == FrameSocket::Role::kListening) {
    socket.set(zmq::sockopt::curve_server, 1);
    socket.set(zmq::sockopt::curve_secretkey, keys.server_secret);
    return;
  }
  const Keys own = make_keys();  // key pair of this connection; the server's public key authorizes a worker
  socket.set(zmq::sockopt::curve_serverkey, keys.server_public);
  socket.set(zmq::sockopt::curve_publickey, own.server_public);
  socket.set(zmq::sockopt::curve_secretkey, own.server_secret);
}

void poll(std::vector<zmq::pollitem_t>& items, std::chrono::nanoseconds limit) {
  using std::chrono::milliseconds;
  const auto rounded_up = std::clamp(std::chrono::ceil<milliseconds>(limit), milliseconds(0), OwnClock::kReadEvery);
  try {
    zmq::poll(items.data(), items.size(), rounded_up);
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw PeerError("cannot wait for messages: ", error.what());
  }
}

}  // namespace

struct FrameSocket::Zmq {
  explicit Zmq(Role role)
      : context(role == Role::kListening ? kListeningThreads : 1),
        socket(context, role == Role::kListening ? zmq::socket_type::router : zmq::socket_type::dealer) {}
  zmq::context_t context;
  zmq::socket_t socket;
  std::optional<StrangerGuard> guard;  // for a listening socket only
};

FrameSocket::FrameSocket(Role role, const std::string& name, Limits limits, const Keys& keys)
    : role_(role), limits_(limits) {
  try {
    zmq_ = std::make_unique<Zmq>(role);
    zmq::socket_t& socket = zmq_->socket;
    socket.set(zmq::sockopt::linger, kLinger);
    socket.set(zmq::sockopt::rcvhwm, kUnread);
    socket.set(zmq::sockopt::sndhwm, limits.unsent);
    socket.set(zmq::sockopt::maxmsgsize, limits.frame_bytes < 0 ? limits.frame_bytes : limits.frame_bytes + kSeal);
    socket.set(zmq::sockopt::handshake_ivl, static_cast<int>(kHandshake.count()));
    if (role == Role::kListening) {
      socket.set(zmq::sockopt::router_mandatory, true);  // otherwise undeliverable messages are queued first
      socket.set(zmq::sockopt::router_handover, true);   // a peer's new connection replaces its old one
      zmq_->guard.emplace(zmq_->context, socket);
    } else {
      socket.set(zmq::sockopt::routing_id, name);
      socket.set(zmq::sockopt::reconnect_ivl, kReconnect);
      socket.set(zmq::sockopt::immediate, true);  // queues nothing without a connection
      // Each connection begins with an empty message, which carries the peer's name before any long message.
      socket.set(zmq::sockopt::probe_router, true);
    }
    set_keys(socket, role, keys);
  } catch (const zmq::error_t& error) {
    if (error.num() == EINVAL && keys.encrypts())
      throw ConfigError("a key in ps.keys is not a CurveZMQ key; make a pair with sluice make-keys");
    throw PeerError("cannot make a socket: ", error.what());
  }
}

FrameSocket::~FrameSocket() = default;

int FrameSocket::listen(const std::string& host, int port) {
  return take_over(comm::listen_on(host, port, {"this server", "ps.address", "port in ps.address", "--server"}));
}

int FrameSocket::take_over(int listening) {
  const auto [address, bound] = comm::own_address(listening);
  try {
    zmq_->socket.set(zmq::sockopt::use_fd, listening);  // the socket owns it from here on
    zmq_->socket.bind(comm::tcp_endpoint(address, bound));
  } catch (const zmq::error_t& error) {
    throw PeerError("cannot listen on ", address, ": ", error.what());
  }
  return bound;
}

void FrameSocket::connect(const std::string& host, int port) {
  host_ = host;
  port_ = port;
  try_next_address();
}

// ZeroMQ itself retries only the one address that it was given.
void FrameSocket::try_next_address() {
  if (was_connected_ || time_.now() < next_try_) return;
  next_try_ = time_.now() + kTry;
  std::string endpoint;
  try {
    const std::vector<std::string> addresses = comm::addresses_of(host_, {}, "ps.address, or MASTER_ADDR without one");
    endpoint = comm::tcp_endpoint(addresses[tries_++ % addresses.size()], port_);
  } catch (const ConfigError& error) {  // the name of a starting machine may not exist yet
    if (!std::exchange(has_warned_, true)) log_warning(error.what(), "; trying again");
    return;
  }
  if (endpoint == endpoint_) return;
  try {
    if (!endpoint_.empty()) zmq_->socket.disconnect(endpoint_);
    zmq_->socket.set(zmq::sockopt::ipv6, endpoint.starts_with("tcp://["));
    zmq_->socket.connect(endpoint);
    endpoint_ = endpoint;
  } catch (const zmq::error_t& error) {
    throw PeerError("cannot connect to ", endpoint, ": ", error.what());
  }
}

bool FrameSocket::send(const std::string& routing_id, const Frames& frames) {
  using zmq::send_flags;
  try {
    zmq::socket_t& socket = zmq_->socket;
    if (role_ == Role::kListening && !socket.send(zmq::buffer(routing_id), send_flags::sndmore | send_flags::dontwait))
      return false;
    for (std::size_t i = 0; i < frames.size(); ++i) {
      zmq::message_t message = message_of(frames[i]);
      const bool is_last = i + 1 == frames.size();
      const auto sent =
          socket.send(message, is_last ? send_flags::dontwait : send_flags::dontwait | send_flags::sndmore);
      if (!sent && i == 0 && role_ == Role::kConnecting) {
        try_next_address();
        return false;
      }
      was_connected_ = true;
      if (!sent) return true;  // the connection ended in the middle of the message, which is lost
    }
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw PeerError("cannot send: ", error.what());
    return false;
  }
  return true;
}

void FrameSocket::wait(std::chrono::nanoseconds limit, int wake, const std::vector<FrameSocket*>& others) {
  std::vector<zmq::pollitem_t> items{{zmq_->socket, 0, ZMQ_POLLIN, 0}};
  for (const FrameSocket* other : others) items.push_back({other->zmq_->socket, 0, ZMQ_POLLIN, 0});
  if (wake >= 0) items.push_back({nullptr, wake, ZMQ_POLLIN, 0});
  poll(items, limit);
}

void FrameSocket::wait_to_send(std::chrono::nanoseconds limit, int wake) {
  std::vector<zmq::pollitem_t> items{{zmq_->socket, 0, ZMQ_POLLIN | ZMQ_POLLOUT, 0}, {nullptr, wake, ZMQ_POLLIN, 0}};
  poll(items, limit);
}

std::optional<FrameSocket::Received> FrameSocket::next() {
  while (auto frames = receive()) {
    Received received;
    if (role_ == Role::kListening) {
      received.routing_id = frames->front().bytes;
      frames->erase(frames->begin());
    }
    received.frames = std::move(*frames);
    const bool begins_connection = received.frames.size() == 1 && received.frames.front().bytes.empty();
    if (begins_connection) continue;
    if (!received.frames.empty() && received.frames.size() <= limits_.frames) return received;
    ++dropped_;
  }
  return std::nullopt;
}

void FrameSocket::trust(const std::string& routing_id) { zmq_->guard->trust(routing_id); }

// Beyond the limit it keeps only as many frames as show that there were too many.
std::optional<Frames> FrameSocket::receive() {
  Frames frames;
  for (bool has_more = true; has_more;) {
    zmq::message_t message;
    try {
      if (!zmq_->socket.recv(message, zmq::recv_flags::dontwait)) return std::nullopt;
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) continue;
      throw PeerError("cannot receive: ", error.what());
    }
    has_more = message.more();
    const bool is_header = zmq_->guard && frames.size() == 1;  // follows the peer's name
    if (const int fd = is_header ? ::zmq_msg_get(message.handle(), ZMQ_SRCFD) : -1; fd >= 0)
      zmq_->guard->on_message(fd, std::string(frames.front().bytes));
    if (frames.size() <= limits_.frames + 1) frames.push_back(frame_of_message(std::move(message)));
  }
  return frames;
}

std::string unique_name() {
  std::random_device random;
  std::string name;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int i = 0; i < 32; ++i) name += kDigits[random() % kDigits.size()];
  return name;
}

Keys make_keys() {
  std::array<char, 41> secret{}, own{};
  if (zmq_curve_keypair(own.data(), secret.data()) != 0)
    throw ConfigError("this machine's libzmq was built without CURVE; run without keys, on one machine");
  return {own.data(), secret.data()};
}

std::string public_key_of(const std::string& secret) {
  std::array<char, 41> own{};
  if (secret.size() + 1 != own.size() || zmq_curve_public(own.data(), secret.c_str()) != 0)
    throw ConfigError("the secret key in ps.keys is damaged; make a pair with sluice make-keys");
  return own.data();
}

}  // namespace sluice::ps
