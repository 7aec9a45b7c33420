// network: bytes per second of every network interface, from the kernel's counters in /proc/net/dev.
// Not here: which of them this run sent (the counters are those of the network namespace, other processes included);
// what the all-reduce achieved (breakdown.h).
// An interface made of others (bond, bridge, VLAN) counts beside them: the total then has those bytes twice.
// Threads: one at a time. Errors: none; a file that cannot be read gives no interfaces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/clock.h"

namespace sluice::profiler {

// Bytes since the interface came up.
struct InterfaceBytes {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;

  bool operator==(const InterfaceBytes&) const = default;
};
using NetworkBytes = std::map<std::string, InterfaceBytes>;  // by interface

// The text of /proc/net/dev. Lines that are not an interface with its 16 counters are left out.
[[nodiscard]] NetworkBytes parse_net_dev(std::string_view text);

// Bytes per second.
struct InterfaceRate {
  double received = 0;
  double sent = 0;
};
// Each byte that this interface has sent it has also received: its two rates are one.
inline constexpr std::string_view kLoopback = "lo";

struct NetworkRates {
  std::map<std::string, InterfaceRate> interfaces;  // those that were there at both ends of the interval
  // Sent and received, over all interfaces; of the loopback only what was sent.
  double total = 0;
};

// The rates between two readings. Requires: seconds > 0. A counter that went back has wrapped at 2^32 where that
// explains it (less than 2^31 bytes went by), else the interface was made anew and counted from 0.
[[nodiscard]] NetworkRates network_rates(const NetworkBytes& before, const NetworkBytes& after, double seconds);

class NetworkSampler {
 public:
  static constexpr Nanoseconds kInterval = 500'000'000;

  explicit NetworkSampler(std::filesystem::path file = "/proc/net/dev") : file_(std::move(file)) {}

  [[nodiscard]] bool is_known() const { return is_known_; }  // after the second reading
  // The rates between the last two readings. Reads the file on the first call, and then when kInterval has passed since
  // the last reading; calls in between cost a comparison. Empty until the second reading.
  // now: as of now_ns(); tests pass their own.
  const NetworkRates& rates(Nanoseconds now = now_ns());

 private:
  struct Reading {
    Nanoseconds at = 0;
    NetworkBytes bytes;
  };

  std::filesystem::path file_;
  std::optional<Reading> last_;
  NetworkRates rates_;
  bool is_known_ = false;
};

}  // namespace sluice::profiler
