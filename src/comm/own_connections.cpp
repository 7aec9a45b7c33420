#include "comm/own_connections.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace sluice::comm {
namespace {

using NameOf = int (*)(int, sockaddr*, socklen_t*);

// nullopt unless the descriptor is a TCP connection.
std::optional<int> port_by(NameOf name_of, int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name_of(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return std::nullopt;
}

}  // namespace

std::set<OwnConnections::Connection> OwnConnections::open_now() {
  std::set<Connection> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename().string();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    const auto own = port_by(::getsockname, descriptor), other = port_by(::getpeername, descriptor);
    if (own && other) found.insert({descriptor, *own, *other});
  }
  return found;
}

void OwnConnections::leave_out(int port) {
  const std::scoped_lock lock(mutex_);
  left_out_.insert(port);
}

void OwnConnections::add_since(const std::set<Connection>& before) {
  {
    const std::scoped_lock lock(mutex_);
    for (const Connection& connection : open_now()) {
      const bool is_left_out = left_out_.contains(connection.port) || left_out_.contains(connection.port_of_other_end);
      if (!before.contains(connection) && !is_left_out) connections_.insert(connection);
    }
    if (!is_shut_down_) return;
  }
  shut_down();
}

void OwnConnections::shut_down() {
  const std::scoped_lock lock(mutex_);
  is_shut_down_ = true;
  for (const Connection& connection : open_now()) {
    if (connections_.contains(connection)) ::shutdown(connection.descriptor, SHUT_RDWR);
  }
  connections_.clear();
}

}  // namespace sluice::comm
