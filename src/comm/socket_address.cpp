#include "comm/socket_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

constexpr std::chrono::milliseconds kBetweenTries{200};
constexpr timeval kLongestConnect{2, 0};  // a packet that a firewall drops gets no answer

AddressList resolve_number(const std::string& address, int port, int type) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

bool is_name(const std::string& host) { return resolve_number(host, /*port=*/0, SOCK_STREAM) == nullptr; }

AddressList resolve(const std::string& address, int port, int type) {
  AddressList found = resolve_number(address, port, type);
  check(found != nullptr, concat(address, " is an address"));
  return found;
}

SocketAddress in_numbers(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  ::getnameinfo(address, length, host.data(), host.size(), port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  return {host.data(), std::atoi(port.data())};
}

std::string reason(int error) { return std::generic_category().message(error); }

std::string with_addresses(const std::string& host, const std::vector<std::string>& addresses) {
  return addresses == std::vector{host} ? host : concat(host, " (", join(addresses, ", "), ")");
}

[[noreturn]] void cannot_listen(const std::string& host, int port, int error, const AddressSettings& settings) {
  if (error == EADDRINUSE) {
    throw ConfigError("port ", port, " on ", host, " is in use; choose another ", settings.port,
                      " or end the program that uses it (scripts/stop.sh)");
  }
  if (error == EADDRNOTAVAIL)
    throw ConfigError(host, " is not an address of this machine, but ", settings.who, " runs here; check ",
                      settings.host, " and ", settings.number);
  const std::string what = concat(settings.who, " cannot listen on ", host, ":", port, ": ", reason(error));
  if (is_file_limit(error)) too_many_open_files(what);
  throw ConfigError(what);
}

std::optional<int> listen_on_one_of(const std::vector<std::string>& addresses, const std::string& host, int port,
                                    const AddressSettings& settings) {
  for (const std::string& address : addresses) {
    const AddressList at = resolve(address, port, SOCK_STREAM);
    const int fd = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // the port of a run that has just ended
    if (fd >= 0 && ::bind(fd, at->ai_addr, at->ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT)
      cannot_listen(with_addresses(host, {address}), port, error, settings);
  }
  return std::nullopt;
}

bool takes_connections(const std::string& address, int port) {
  const AddressList at = resolve(address, port, SOCK_STREAM);
  const int fd = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 && is_file_limit(errno))
    too_many_open_files(concat("cannot connect to ", address, ":", port, ": ", reason(errno)));
  if (fd < 0) return false;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kLongestConnect, sizeof kLongestConnect);
  const bool is_there = ::connect(fd, at->ai_addr, at->ai_addrlen) == 0;
  ::close(fd);
  return is_there;
}

// One lookup without retry. why: the reason if there are no addresses.
std::vector<std::string> resolve_addresses(const std::string& host, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error == EAI_SYSTEM && is_file_limit(errno))
    too_many_open_files(concat("cannot look up the host name '", host, "': ", reason(errno)));
  why = error == EAI_SYSTEM ? reason(errno) : error != 0 ? ::gai_strerror(error) : "";
  const AddressList all(found, &::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    std::string address = in_numbers(each->ai_addr, each->ai_addrlen).address;
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(std::move(address));
  }
  return addresses;
}

void log_wait_once(bool& is_logged, OwnLimit& limit, const std::string& what) {
  const auto left = limit.left();
  if (left.count() > 0 && !std::exchange(is_logged, true))
    log_info(what, "; trying again for up to ", seconds_text(std::chrono::ceil<std::chrono::seconds>(left)));
}

}  // namespace

std::optional<HostAndPort> split_host_and_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return HostAndPort{std::move(host), text.substr(colon + 1)};
}

std::vector<std::string> addresses_of(const std::string& host, OwnLimit& limit, const std::string& setting) {
  std::vector<std::string> addresses;
  std::string why;
  bool is_logged = false;
  const auto time_limit = std::chrono::round<std::chrono::milliseconds>(limit.left());
  const bool are_known = limit.retry(kBetweenTries, [&] {
    addresses = resolve_addresses(host, why);
    if (addresses.empty())
      log_wait_once(is_logged, limit, concat("cannot resolve the host name '", host, "' (", why, ")"));
    return !addresses.empty();
  });
  if (!are_known) {
    throw ConfigError("cannot resolve the host name '", host, "' (", why, ")",
                      time_limit.count() > 0 ? concat(" within ", seconds_text(time_limit)) : "", "; check ", setting);
  }
  return addresses;
}

std::vector<std::string> addresses_of(const std::string& host, std::chrono::milliseconds limit,
                                      const std::string& setting) {
  OwnLimit own_limit(limit, kLongestTry);
  return addresses_of(host, own_limit, setting);
}

int listen_on(const std::string& host, int port, const AddressSettings& settings, std::chrono::milliseconds limit) {
  OwnLimit own_limit(is_name(host) ? limit : std::chrono::milliseconds(0), kLongestTry);
  std::vector<std::string> addresses;
  std::optional<int> listener;
  bool is_logged = false;
  const bool listens = own_limit.retry(kBetweenTries, [&] {
    addresses = addresses_of(host, own_limit, settings.host);
    listener = listen_on_one_of(addresses, host, port, settings);
    if (!listener)
      log_wait_once(is_logged, own_limit,
                    concat(with_addresses(host, addresses), " is not an address of this machine"));
    return listener.has_value();
  });
  if (!listens) cannot_listen(with_addresses(host, addresses), port, EADDRNOTAVAIL, settings);
  return *listener;
}

std::string SocketAddress::to_text() const { return concat(address, ' ', port); }

SocketAddress SocketAddress::from_text(const std::string& text) {
  std::istringstream words(text);
  SocketAddress read{};
  if (!(words >> read.address >> read.port))
    throw PeerError("another rank sent '", text,
                    "' instead of its address; start all ranks with one version of Sluice");
  return read;
}

std::optional<SocketAddress> remote_address(int fd) {
  sockaddr_storage remote{};
  socklen_t length = sizeof remote;
  auto* const generic = reinterpret_cast<sockaddr*>(&remote);
  if (::getpeername(fd, generic, &length) != 0) return std::nullopt;
  return in_numbers(generic, length);
}

SocketAddress own_address(int fd) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const generic = reinterpret_cast<sockaddr*>(&own);
  check(::getsockname(fd, generic, &length) == 0, "a bound socket has an address");
  return in_numbers(generic, length);
}

FoundListener find_listener(const std::string& host, int port, OwnLimit& limit, const std::string& setting) {
  FoundListener found;
  (void)limit.retry(kBetweenTries, [&] {
    found.tried = addresses_of(host, limit, setting);  // the addresses may change until a process listens
    for (const std::string& address : found.tried) {
      if (takes_connections(address, port)) {
        found.address = address;
        return true;
      }
      (void)limit.left();  // updates the clock
    }
    return false;
  });
  return found;
}

std::string address_towards(const std::string& host) {
  const AddressList there = resolve(addresses_of(host).front(), /*port=*/9, SOCK_DGRAM);
  const int fd = ::socket(there->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  // Connecting a datagram socket sends nothing; it only selects the route.
  const bool found = fd >= 0 && ::connect(fd, there->ai_addr, there->ai_addrlen) == 0;
  const int error = errno;
  const std::string address = found ? own_address(fd).address : std::string{};
  if (fd >= 0) ::close(fd);
  if (!found && is_file_limit(error))
    too_many_open_files(concat("cannot look up a route to ", host, ": ", reason(error)));
  if (!found) throw ConfigError("there is no route to ", host, " (", reason(error), "); check the address of rank 0");
  return address;
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* first = nullptr;
  check(::getifaddrs(&first) == 0, "the system lists its network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  std::string found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_name != name || each->ifa_addr == nullptr) continue;
    if (each->ifa_addr->sa_family == AF_INET) return in_numbers(each->ifa_addr, sizeof(sockaddr_in)).address;
    if (each->ifa_addr->sa_family == AF_INET6 && found.empty())
      found = in_numbers(each->ifa_addr, sizeof(sockaddr_in6)).address;
  }
  if (found.empty())
    throw ConfigError("--if-name ", name, ": this interface has no address; `ip address` lists all addresses");
  return found;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

std::string tcp_endpoint(const std::string& address, int port) {
  return is_ipv6(address) ? concat("tcp://[", address, "]:", port) : concat("tcp://", address, ":", port);
}

}  // namespace sluice::comm
