// socket_address: finds the addresses of a host, listens and looks for listeners. An address is numeric ("10.0.0.1",
// "::1"). A host may be a name with several addresses. The name of a starting machine may appear late, or still lead to
// an earlier one: functions with a `limit` retry.
// Errors: ConfigError (not a host, not ours, in use); OutOfMemoryError (no more sockets).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/own_time.h"

namespace sluice::comm {

inline constexpr int kLargestPort = 65535;

// "HOST:PORT"; the brackets of an IPv6 address are removed. The port is unparsed. Nothing without a colon.
struct HostAndPort {
  std::string host;
  std::string port;
};
[[nodiscard]] std::optional<HostAndPort> split_host_and_port(const std::string& text);

struct AddressSettings {
  std::string who = "rank 0";
  std::string host = "MASTER_ADDR";
  std::string port = "MASTER_PORT";
  std::string number = "RANK";

  bool operator==(const AddressSettings&) const = default;
};

// Longer than one connection attempt takes: at most this much of one step counts against a limit.
inline constexpr std::chrono::seconds kLongestTry{6};

// The distinct addresses of `host`, in the system's order. setting: the setting that names the host, for errors.
[[nodiscard]] std::vector<std::string> addresses_of(const std::string& host, OwnLimit& limit,
                                                    const std::string& setting = "MASTER_ADDR");
[[nodiscard]] std::vector<std::string> addresses_of(const std::string& host, std::chrono::milliseconds limit = {},
                                                    const std::string& setting = "MASTER_ADDR");

inline constexpr int kAnyPort = 0;

// Listens only on the first address of `host` that this machine has; retries a name. The caller owns the socket.
[[nodiscard]] int listen_on(const std::string& host, int port, const AddressSettings& settings = {},
                            std::chrono::milliseconds limit = {});

struct SocketAddress {
  // How a process sends it to another one. PeerError for a text of another form.
  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static SocketAddress from_text(const std::string& text);

  std::string address;
  int port = 0;
  bool operator==(const SocketAddress&) const = default;
};
[[nodiscard]] SocketAddress own_address(int fd);
// The other end of a connection. Nothing if the socket is not, or no longer, connected.
[[nodiscard]] std::optional<SocketAddress> remote_address(int fd);

struct FoundListener {
  std::string address;  // accepts connections; empty: none did within the limit
  std::vector<std::string> tried;
};
// Tries to connect to each address of `host` in turn, until one accepts or the limit has passed, not counting pauses.
[[nodiscard]] FoundListener find_listener(const std::string& host, int port, OwnLimit& limit,
                                          const std::string& setting = "MASTER_ADDR");

[[nodiscard]] bool is_loopback(const std::string& address);

[[nodiscard]] bool is_ipv6(const std::string& address);
[[nodiscard]] std::string tcp_endpoint(const std::string& address, int port);

[[nodiscard]] std::string address_towards(const std::string& host);

// An address of this machine's interface, preferably IPv4. Throws ConfigError if it has none.
[[nodiscard]] std::string address_of_interface(const std::string& name);

}  // namespace sluice::comm
