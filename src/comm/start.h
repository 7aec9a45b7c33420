// start: the processes of a run check over a shared store (processes.h) that all have arrived and are alive.
// Threads: one. Errors: each arises in all arrived ranks, with the same exit code. ConfigError: a rank is duplicated,
// or ranks differ in world size, version or configuration. PeerError: ranks did not arrive, or fell silent.
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

// Settings that must be equal in every process: a display name ("train.lr", "the version of Sluice") and its value.
using Agreement = std::map<std::string, std::string>;

struct Disagreement {
  std::string key;
  std::string one;
  std::string other;
};
[[nodiscard]] inline std::optional<Disagreement> first_disagreement(const Agreement& one, const Agreement& other) {
  for (const auto& [key, value] : one) {
    const auto found = other.find(key);
    std::string there = found == other.end() ? "not set" : found->second;
    if (there != value) return Disagreement{key, value, std::move(there)};
  }
  return std::nullopt;
}

// limit: until all have arrived, not counting time in which this process itself was stopped.
void start_together(c10d::Store& store, const World& world, const Agreement& agreement,
                    std::chrono::milliseconds limit);

// Called instead by a rank that cannot take part. Ranks that arrive within two seconds throw a PeerError that names it.
void fail_start(c10d::Store& store, const World& world, const std::string& why);

// Key of the store under which start_together() leaves each rank's cores_of_this_process(), as text.
[[nodiscard]] std::string cores_key(int rank);

}  // namespace sluice::comm
