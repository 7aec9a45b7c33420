// socket_address: the address on which rank 0 listens, and the one by which another machine reaches us. Addresses are
// numbers ("10.0.0.1", "::1"); a host may have a name.
// Errors: ConfigError (not a host, not ours, in use).
#pragma once

#include <chrono>
#include <optional>
#include <string>

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

// A socket that listens on `host`:`port` and nowhere else; the caller owns it.
[[nodiscard]] int listen_on(const std::string& host, int port, const AddressSettings& settings = {});

struct SocketAddress {
  std::string address;
  int port = 0;
};
// Where a bound socket listens.
[[nodiscard]] SocketAddress own_address(int fd);

// The address of `host`: the one on which listen_on() listens there. setting: where the host is from.
[[nodiscard]] std::string address_of(const std::string& host, const std::string& setting = "MASTER_ADDR");

// Tries to connect again and again until somebody listens there, or until the time is over: then false. A pause of this
// process does not count.
[[nodiscard]] bool wait_for_listener(const std::string& host, int port, std::chrono::milliseconds limit);

// As ZeroMQ writes them.
[[nodiscard]] bool is_ipv6(const std::string& address);
[[nodiscard]] std::string tcp_endpoint(const std::string& address, int port);

// The address of this machine from which packets to `host` leave.
[[nodiscard]] std::string address_towards(const std::string& host);

// The address that an interface of this machine has; of several an IPv4 one. Throws ConfigError when it has none.
[[nodiscard]] std::string address_of_interface(const std::string& name);

}  // namespace sluice::comm
