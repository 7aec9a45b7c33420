#include "comm/socket_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/own_time.h"

namespace sluice::comm {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, int port, int type, const std::string& setting = "MASTER_ADDR") {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw ConfigError(concat("the host '", host, "' is not known (", ::gai_strerror(error), "); check ", setting));
  return {found, &::freeaddrinfo};
}

SocketAddress in_numbers(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  ::getnameinfo(address, length, host.data(), host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  return {host.data(), std::atoi(port.data())};
}

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void cannot_listen(const std::string& host, int port, int error, const AddressSettings& settings) {
  if (error == EADDRINUSE) {
    throw ConfigError(concat("port ", port, " on ", host, " is in use; choose another ", settings.port,
                             " or end what uses it (scripts/stop.sh)"));
  }
  if (error == EADDRNOTAVAIL)
    throw ConfigError(concat(host, " is no address of this machine, but ", settings.who, " runs here; check ",
                             settings.host, " and ", settings.number));
  throw ConfigError(concat(settings.who, " cannot listen on ", host, ":", port, ": ", reason(error)));
}

}  // namespace

std::optional<HostAndPort> split_host_and_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return HostAndPort{std::move(host), text.substr(colon + 1)};
}

int listen_on(const std::string& host, int port, const AddressSettings& settings) {
  const AddressList addresses = resolve(host, port, SOCK_STREAM, settings.host);
  const int fd = ::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) cannot_listen(host, port, errno, settings);
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // the port of a run that has just ended
  if (::bind(fd, addresses->ai_addr, addresses->ai_addrlen) != 0 || ::listen(fd, SOMAXCONN) != 0) {
    const int error = errno;
    ::close(fd);
    cannot_listen(host, port, error, settings);
  }
  return fd;
}

SocketAddress own_address(int fd) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const generic = reinterpret_cast<sockaddr*>(&own);
  check(::getsockname(fd, generic, &length) == 0, "a bound socket has an address");
  return in_numbers(generic, length);
}

std::string address_of(const std::string& host, const std::string& setting) {
  const AddressList addresses = resolve(host, /*port=*/0, SOCK_STREAM, setting);
  return in_numbers(addresses->ai_addr, addresses->ai_addrlen).address;
}

bool wait_for_listener(const std::string& host, int port, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kBetween{200};
  constexpr timeval kLongestTry{2, 0};  // a packet that a firewall drops has no answer
  const AddressList addresses = resolve(host, port, SOCK_STREAM);
  OwnTime time(std::chrono::seconds(2 * (kLongestTry.tv_sec + 1)));
  while (true) {
    const int fd = ::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kLongestTry, sizeof kLongestTry);
    const bool is_there = fd >= 0 && ::connect(fd, addresses->ai_addr, addresses->ai_addrlen) == 0;
    if (fd >= 0) ::close(fd);
    if (is_there || time.pass() >= limit) return is_there;
    std::this_thread::sleep_for(kBetween);
  }
}

std::string address_towards(const std::string& host) {
  const AddressList addresses = resolve(host, /*port=*/9, SOCK_DGRAM);
  const int fd = ::socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  // Connecting a datagram socket sends nothing: it only chooses the route.
  const bool found = fd >= 0 && ::connect(fd, addresses->ai_addr, addresses->ai_addrlen) == 0;
  const int error = errno;
  const std::string address = found ? own_address(fd).address : std::string{};
  if (fd >= 0) ::close(fd);
  if (!found) throw ConfigError(concat("there is no route to ", host, " (", reason(error), "); check MASTER_ADDR"));
  return address;
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* first = nullptr;
  check(::getifaddrs(&first) == 0, "the system lists its interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  std::string found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_name != name || each->ifa_addr == nullptr) continue;
    if (each->ifa_addr->sa_family == AF_INET) return in_numbers(each->ifa_addr, sizeof(sockaddr_in)).address;
    if (each->ifa_addr->sa_family == AF_INET6 && found.empty())
      found = in_numbers(each->ifa_addr, sizeof(sockaddr_in6)).address;
  }
  if (found.empty())
    throw ConfigError(concat("--if-name ", name, ": this interface has no address; `ip address` lists them"));
  return found;
}

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

std::string tcp_endpoint(const std::string& address, int port) {
  return is_ipv6(address) ? concat("tcp://[", address, "]:", port) : concat("tcp://", address, ":", port);
}

}  // namespace sluice::comm
