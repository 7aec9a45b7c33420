#include "ps/net/stranger_guard.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::ps {
namespace {

constexpr std::chrono::milliseconds kLookInterval{10};
constexpr Nanoseconds kOverLimitFor = 50'000'000;  // before connections are closed
constexpr const char* kEvents = "inproc://events";

std::int64_t bytes_received(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return static_cast<std::int64_t>(info.tcpi_bytes_received);
}

}  // namespace

struct StrangerGuard::Events {
  explicit Events(zmq::context_t& context) : socket(context, zmq::socket_type::pair) {}
  zmq::socket_t socket;
};

StrangerGuard::StrangerGuard(zmq::context_t& context, zmq::socket_t& listening)
    : listening_(listening), events_(std::make_unique<Events>(context)) {
  if (::zmq_socket_monitor(listening.handle(), kEvents, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) != 0)
    throw PeerError("cannot watch the connections of a socket: ", ::zmq_strerror(::zmq_errno()));
  events_->socket.connect(kEvents);
  thread_ = std::thread([this] { run(); });
}

StrangerGuard::~StrangerGuard() {
  stop_.give();
  thread_.join();
  ::zmq_socket_monitor(listening_.handle(), nullptr, 0);
}

void StrangerGuard::trust(const std::string& routing_id) {
  const std::scoped_lock lock(mutex_);
  trusted_.insert(routing_id);
  for (auto& [fd, connection] : connections_) connection.is_trusted |= connection.routing_id == routing_id;
}

void StrangerGuard::on_message(int fd, const std::string& routing_id) {
  const std::scoped_lock lock(mutex_);
  Connection& connection = connection_at(fd);
  connection.routing_id = routing_id;
  connection.is_trusted = trusted_.contains(routing_id);
  if (connection.is_trusted) return;
  connection.whole = bytes_received(fd);
  connection.last_message_at = clock_.now();
}

void StrangerGuard::run() {
  try {
    std::array<zmq::pollitem_t, 2> items{{{events_->socket, 0, ZMQ_POLLIN, 0}, {nullptr, stop_.fd(), ZMQ_POLLIN, 0}}};
    while (items[1].revents == 0) {
      zmq::poll(items, has_strangers() ? kLookInterval : std::chrono::milliseconds(-1));
      take_events();
      check_strangers();
    }
  } catch (const std::exception& error) {
    log_warning("no longer limiting unfinished messages to this process: ", error.what());
  }
}

void StrangerGuard::take_events() {
  zmq::message_t event, address;
  while (events_->socket.recv(event, zmq::recv_flags::dontwait)) {
    static_cast<void>(events_->socket.recv(address));
    std::uint16_t kind = 0;
    std::int32_t fd = 0;
    std::memcpy(&kind, event.data(), sizeof kind);
    std::memcpy(&fd, event.data<char>() + sizeof kind, sizeof fd);
    const std::scoped_lock lock(mutex_);
    if (kind == ZMQ_EVENT_ACCEPTED) {
      connection_at(fd);
    } else {
      connections_.erase(fd);
    }
  }
}

// A message may be read before the event of its connection.
StrangerGuard::Connection& StrangerGuard::connection_at(int fd) {
  Connection& connection = connections_[fd];
  if (auto remote = comm::remote_address(fd); remote != connection.remote)
    connection = {.remote = std::move(remote), .routing_id = {}, .last_message_at = clock_.now()};
  return connection;
}

bool StrangerGuard::has_strangers() {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(connections_, [](const auto& entry) { return !entry.second.is_trusted; });
}

void StrangerGuard::check_strangers() {
  struct Stranger {
    int fd = -1;
    std::int64_t bytes = 0;
    Nanoseconds last_message_at = 0;
  };
  const std::scoped_lock lock(mutex_);
  std::vector<Stranger> strangers;
  std::int64_t sum = 0;
  std::erase_if(connections_, [&](const auto& entry) {
    const auto& [fd, connection] = entry;
    if (connection.is_trusted) return false;
    if (!connection.remote || comm::remote_address(fd) != connection.remote) return true;
    strangers.push_back({fd, bytes_received(fd) - connection.whole, connection.last_message_at});
    sum += strangers.back().bytes;
    return false;
  });
  if (sum <= kMostBytes) fitted_ = clock_.now();
  const bool is_too_much = sum > kFarTooManyBytes || clock_.now() - fitted_ > kOverLimitFor;
  std::ranges::sort(strangers, std::ranges::less{}, &Stranger::bytes);
  for (; is_too_much && sum > kMostBytes; strangers.pop_back()) {
    sum -= strangers.back().bytes;
    close(strangers.back().fd, strangers.back().bytes);
  }
  std::ranges::sort(strangers, std::ranges::greater{}, &Stranger::last_message_at);
  for (; strangers.size() > kMostStrangers; strangers.pop_back()) close(strangers.back().fd, strangers.back().bytes);
}

// ZeroMQ owns the descriptor and may close it at any time. The copy keeps it from becoming another connection.
void StrangerGuard::close(int fd, std::int64_t bytes) {
  const FileDescriptor copy(::dup(fd));
  const auto found = connections_.find(fd);
  if (!copy.is_open()) return;
  const std::optional<comm::SocketAddress> remote = comm::remote_address(copy.get());
  if (!remote || remote != found->second.remote) return;
  // ZeroMQ closes the connection when it sees the shutdown. Unread bytes are then dropped instead of awaited.
  const linger drop{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(copy.get(), SOL_SOCKET, SO_LINGER, &drop, sizeof drop);
  ::shutdown(copy.get(), SHUT_RDWR);
  const std::string what = concat("closed the connection from ", comm::tcp_endpoint(remote->address, remote->port),
                                  ": it sent ", human_bytes(static_cast<std::uint64_t>(bytes)),
                                  " of an unfinished message without having joined as a worker or server");
  connections_.erase(found);
  if (std::exchange(has_warned_, true)) return log_debug(what);
  log_warning(what, "; further ones are logged with --verbose only");
}

}  // namespace sluice::ps
