#include "comm/line_socket.h"

#include <algorithm>
#include <array>
#include <utility>
#include <zmq.hpp>

#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

// Milliseconds: a day. With -1, which means never, ZeroMQ does not report the end of a connection.
constexpr int kNeverAgain = 86'400'000;
constexpr int kLinger = 200;         // milliseconds for queued lines when the socket closes
constexpr int kUnreadMessages = 64;  // up to 8 KiB each, queued per connection

}  // namespace

struct LineSocket::Zmq {
  zmq::context_t context{1};
  zmq::socket_t socket{context, zmq::socket_type::stream};
};

LineSocket::LineSocket(std::size_t longest_line) : longest_line_(longest_line) {
  try {
    zmq_ = std::make_unique<Zmq>();
    zmq_->socket.set(zmq::sockopt::linger, kLinger);
    zmq_->socket.set(zmq::sockopt::rcvhwm, kUnreadMessages);
  } catch (const zmq::error_t& error) {
    throw PeerError("cannot make a socket: ", error.what());
  }
}

LineSocket::~LineSocket() = default;

int LineSocket::listen(const std::string& host) {
  const int fd = listen_on(host, /*port=*/0);
  const auto [address, port] = own_address(fd);
  try {
    zmq_->socket.set(zmq::sockopt::use_fd, fd);  // the socket owns it from here on
    zmq_->socket.bind(tcp_endpoint(address, port));
  } catch (const zmq::error_t& error) {
    throw PeerError("cannot listen on ", address, ": ", error.what());
  }
  return port;
}

void LineSocket::connect(const std::string& host, int port) {
  const std::string address = addresses_of(host).front(), endpoint = tcp_endpoint(address, port);
  try {
    zmq_->socket.set(zmq::sockopt::ipv6, is_ipv6(address));
    zmq_->socket.connect(endpoint);
  } catch (const zmq::error_t& error) {
    throw PeerError("cannot connect to ", endpoint, ": ", error.what());
  }
}

void LineSocket::connect_once(const std::string& host, int port, const Connection& name) {
  zmq_->socket.set(zmq::sockopt::reconnect_ivl, kNeverAgain);
  zmq_->socket.set(zmq::sockopt::connect_routing_id, name);
  connect(host, port);
}

void LineSocket::send(const Connection& connection, std::string_view line) { push(connection, concat(line, '\n')); }

void LineSocket::close(const Connection& connection) {
  begun_.erase(connection);
  std::erase_if(events_, [&](const Event& event) { return event.connection == connection; });
  push(connection, {});  // an empty message ends the connection
}

// Drops the message if the socket cannot queue more.
void LineSocket::push(const Connection& connection, std::string_view bytes) {
  using zmq::send_flags;
  try {
    if (zmq_->socket.send(zmq::buffer(connection), send_flags::sndmore | send_flags::dontwait))
      zmq_->socket.send(zmq::buffer(bytes), send_flags::dontwait);
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;  // the connection has ended; next() reports it
  }
}

void LineSocket::wait(std::chrono::nanoseconds limit, int wake) {
  using std::chrono::milliseconds;
  if (!events_.empty()) return;
  std::array<zmq::pollitem_t, 2> items{{{zmq_->socket, 0, ZMQ_POLLIN, 0}, {nullptr, wake, ZMQ_POLLIN, 0}}};
  const auto rounded_up = std::chrono::ceil<milliseconds>(std::max(limit, std::chrono::nanoseconds{0}));
  try {
    zmq::poll(items, rounded_up);
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
  }
}

std::optional<LineSocket::Event> LineSocket::next() {
  while (events_.empty() && receive()) {
  }
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool LineSocket::receive() {
  zmq::message_t id, bytes;
  try {
    if (!zmq_->socket.recv(id, zmq::recv_flags::dontwait)) return false;
    (void)zmq_->socket.recv(bytes);  // ZeroMQ delivers all parts of a message together
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    return false;
  }
  const Connection connection = id.to_string();
  const bool is_known = begun_.contains(connection);
  if (!bytes.empty()) {
    if (is_known) take(connection, bytes.to_string_view());
  } else if (is_known) {
    begun_.erase(connection);
    events_.push_back({connection, Event::What::kEnded, {}});
  } else {
    begun_[connection];
    events_.push_back({connection, Event::What::kOpened, {}});
  }
  return true;
}

void LineSocket::take(const Connection& connection, std::string_view bytes) {
  std::string& begun = begun_.at(connection);
  for (std::size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    begun += bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (begun.size() > longest_line_) break;
    events_.push_back({connection, Event::What::kLine, std::exchange(begun, {})});
  }
  begun += bytes;
  if (begun.size() <= longest_line_) return;
  close(connection);
  events_.push_back({connection, Event::What::kEnded, {}});
}

}  // namespace sluice::comm
