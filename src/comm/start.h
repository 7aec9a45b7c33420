// start: how the processes of a run make sure, over a store that all of them reach, that everyone is there, alive, and
// was started for the same run. Not here: how they reach the store (processes.h). Threads: one. Errors, each in all
// ranks that are there, with the same exit code: ConfigError (another world size, version or configuration in some
// rank, a rank twice); PeerError (ranks that did not come, or are not heard of again).
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "comm/world.h"

namespace c10d {
class Store;
}

namespace sluice::comm {

// What must be the same in every process: a name for messages ("train.lr", "the version of Sluice") and its value.
using Agreement = std::map<std::string, std::string>;

struct Disagreement {
  std::string key;
  std::string one;  // its values
  std::string other;
};
// The first key of `one` that `other` has otherwise, or has not; nothing: there is none.
[[nodiscard]] inline std::optional<Disagreement> first_disagreement(const Agreement& one, const Agreement& other) {
  for (const auto& [key, value] : one) {
    const auto found = other.find(key);
    std::string there = found == other.end() ? "not set" : found->second;
    if (there != value) return Disagreement{key, value, std::move(there)};
  }
  return std::nullopt;
}

// limit: until all are there, without the time in which this process itself was stopped.
void start_together(c10d::Store& store, const World& world, const Agreement& agreement,
                    std::chrono::milliseconds limit);

// Instead of start_together(), in a rank that cannot take part: those who are there, or come within two seconds, end
// with a PeerError that names this rank and says why.
void fail_start(c10d::Store& store, const World& world, const std::string& why);

// Where the store then holds cores_of_this_process() of each rank, as text.
[[nodiscard]] std::string cores_key(int rank);

}  // namespace sluice::comm
