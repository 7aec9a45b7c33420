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
  const auto value_in = [](const Agreement& agreement, const std::string& key) {
    const auto found = agreement.find(key);
    return found == agreement.end() ? std::string("not set") : found->second;
  };
  for (const Agreement* keys : {&one, &other}) {
    for (const auto& [key, value] : *keys) {
      Disagreement found{key, value_in(one, key), value_in(other, key)};
      if (found.one != found.other) return found;
    }
  }
  return std::nullopt;
}

inline constexpr auto kDoorKey = "door";  // the note of a run that goes on (door.h)

// limit: until all have arrived, not counting time in which this process itself was stopped. Returns the note if a run
// goes on at this meeting point.
[[nodiscard]] std::optional<std::string> start_together(c10d::Store& store, const World& world,
                                                        const Agreement& agreement, std::chrono::milliseconds limit);

// Called instead by a rank that cannot take part. Ranks that arrive within two seconds throw a PeerError that names it.
void fail_start(c10d::Store& store, const World& world, const std::string& why);

// Key of the store under which start_together() leaves each rank's cores_of_this_process(), as text.
[[nodiscard]] std::string cores_key(int rank);

}  // namespace sluice::comm
