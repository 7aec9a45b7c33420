// socket_address: the address on which rank 0 listens, and the one by which another machine reaches us. Addresses are
// numbers ("10.0.0.1", "::1"). A host may have a name, and a name several addresses. A machine that is starting, or a
// pod, may get its name late, or its name may still lead to an earlier machine: functions with a `limit` ask for such a
// name again until the limit is over. Errors: ConfigError (not a host, not ours, in use); OutOfMemoryError (no more
// sockets).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/own_time.h"

namespace sluice::comm {

inline constexpr int kLargestPort = 65535;

// "HOST:PORT"; an IPv6 address in brackets, which are left out. The port is text still; nothing where there is none.
struct HostAndPort {
  std::string host;
  std::string port;
};
[[nodiscard]] std::optional<HostAndPort> split_host_and_port(const std::string& text);

// What an error says to check.
struct AddressSettings {
  std::string who = "rank 0";
  std::string host = "MASTER_ADDR";
  std::string port = "MASTER_PORT";
  std::string number = "RANK";
};

// More than one connection takes: the longest step of a limit that is given to these functions. Of a question to a name
// server that takes longer only this much counts.
inline constexpr std::chrono::seconds kLongestTry{6};

// The addresses of `host`, each once, in the system's order. setting: where the host is from.
[[nodiscard]] std::vector<std::string> addresses_of(const std::string& host, OwnLimit& limit,
                                                    const std::string& setting = "MASTER_ADDR");
[[nodiscard]] std::vector<std::string> addresses_of(const std::string& host, std::chrono::milliseconds limit = {},
                                                    const std::string& setting = "MASTER_ADDR");

// A socket that listens on the first address of `host` that this machine has, and nowhere else; the caller owns it. If
// `host` is a name without such an address, asks for its addresses again.
[[nodiscard]] int listen_on(const std::string& host, int port, const AddressSettings& settings = {},
                            std::chrono::milliseconds limit = {});

struct SocketAddress {
  std::string address;
  int port = 0;
  bool operator==(const SocketAddress&) const = default;
};
// Where a bound socket listens.
[[nodiscard]] SocketAddress own_address(int fd);
// The other end of a connection; nothing if the socket is not connected (any more).
[[nodiscard]] std::optional<SocketAddress> remote_address(int fd);

struct FoundListener {
  std::string address;             // that takes connections; empty: none did within the limit
  std::vector<std::string> tried;  // the addresses of the host
};
// Tries to connect to each address of `host` in turn, again and again until one takes the connection or the limit is
// over. A pause of this process does not count.
[[nodiscard]] FoundListener find_listener(const std::string& host, int port, OwnLimit& limit);

[[nodiscard]] bool is_loopback(const std::string& address);

// As ZeroMQ writes them.
[[nodiscard]] bool is_ipv6(const std::string& address);
[[nodiscard]] std::string tcp_endpoint(const std::string& address, int port);

// The address of this machine from which packets to `host` leave.
[[nodiscard]] std::string address_towards(const std::string& host);

// The address that an interface of this machine has; of several an IPv4 one. Throws ConfigError when it has none.
[[nodiscard]] std::string address_of_interface(const std::string& name);

}  // namespace sluice::comm
