#include "profiler/network.h"

#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

namespace sluice::profiler {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::size_t kCounters = 16;  // 8 received, 8 sent; the first of each is bytes

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// The counters of a line after its name; empty if it does not begin with 16 numbers.
std::optional<InterfaceBytes> parse_counters(std::string_view text) {
  std::array<std::uint64_t, kCounters> counters{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::uint64_t& counter : counters) {
    while (at != end && kBlanks.find(*at) != std::string_view::npos) ++at;
    const auto [next, error] = std::from_chars(at, end, counter);
    if (error != std::errc{}) return std::nullopt;
    if (next != end && kBlanks.find(*next) == std::string_view::npos) return std::nullopt;
    at = next;
  }
  return InterfaceBytes{.received = counters[0], .sent = counters[kCounters / 2]};
}

std::uint64_t bytes_between(std::uint64_t before, std::uint64_t after) {
  constexpr std::uint64_t kRange = std::uint64_t{1} << 32;
  if (after >= before) return after - before;
  const bool may_have_wrapped = before < kRange && after + (kRange - before) < kRange / 2;
  return may_have_wrapped ? after + (kRange - before) : after;
}

}  // namespace

NetworkBytes parse_net_dev(std::string_view text) {
  NetworkBytes bytes;
  while (!text.empty()) {
    const auto newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    const auto colon = line.rfind(':');  // the name of an alias also has a colon: "eth0:1: 0 0 ..."
    if (colon == std::string_view::npos) continue;
    const std::string_view name = trimmed(line.substr(0, colon));
    const auto counters = parse_counters(line.substr(colon + 1));
    if (!name.empty() && counters) bytes[std::string(name)] = *counters;
  }
  return bytes;
}

NetworkRates network_rates(const NetworkBytes& before, const NetworkBytes& after, double seconds) {
  NetworkRates rates;
  for (const auto& [name, now] : after) {
    const auto then = before.find(name);
    if (then == before.end()) continue;
    const InterfaceRate rate{
        .received = static_cast<double>(bytes_between(then->second.received, now.received)) / seconds,
        .sent = static_cast<double>(bytes_between(then->second.sent, now.sent)) / seconds};
    rates.interfaces[name] = rate;
    rates.total += name == kLoopback ? rate.sent : rate.sent + rate.received;
  }
  return rates;
}

const NetworkRates& NetworkSampler::rates(Nanoseconds now) {
  if (last_ && now - last_->at < kInterval) return rates_;
  std::ifstream in(file_, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  Reading reading{now, parse_net_dev(std::move(text).str())};
  is_known_ = last_.has_value();
  if (last_) rates_ = network_rates(last_->bytes, reading.bytes, to_s(now - last_->at));
  last_ = std::move(reading);
  return rates_;
}

}  // namespace sluice::profiler
