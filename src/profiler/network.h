// network: bytes per second of each network interface, from /proc/net/dev, including other processes. Composite
// interfaces (bond, bridge, VLAN) count besides their parts. Threads: one at a time. Errors: none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/clock.h"

namespace sluice::profiler {

struct InterfaceBytes {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;

  bool operator==(const InterfaceBytes&) const = default;
};
using NetworkBytes = std::map<std::string, InterfaceBytes>;

// Parses the text of /proc/net/dev. Lines without an interface and 16 counters are ignored.
[[nodiscard]] NetworkBytes parse_net_dev(std::string_view text);

struct InterfaceRate {
  double received = 0;
  double sent = 0;
};
inline constexpr std::string_view kLoopback = "lo";

struct NetworkRates {
  std::map<std::string, InterfaceRate> interfaces;
  // Bytes per second sent and received over all interfaces; for the loopback only those sent.
  double total = 0;
};

// A counter that fell has wrapped at 2^32 if that means less than 2^31 bytes; else the interface was recreated.
[[nodiscard]] NetworkRates network_rates(const NetworkBytes& before, const NetworkBytes& after, double seconds);

class NetworkSampler {
 public:
  static constexpr Nanoseconds kInterval = 500'000'000;

  explicit NetworkSampler(std::filesystem::path file = "/proc/net/dev") : file_(std::move(file)) {}

  [[nodiscard]] bool is_known() const { return is_known_; }
  // Rates between the last two readings, at least kInterval apart; empty until the second one. now: from now_ns().
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
