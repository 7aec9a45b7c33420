// socket_address: the address on which rank 0 listens, and the one by which another machine reaches us.
// Errors: ConfigError (not a host, not ours, in use).
#pragma once

#include <string>

namespace sluice::comm {

// A socket that listens on `host`:`port` and nowhere else; the caller owns it.
[[nodiscard]] int listen_on(const std::string& host, int port);

// The address of this machine from which packets to `host` leave, as numbers.
[[nodiscard]] std::string address_towards(const std::string& host);

}  // namespace sluice::comm
