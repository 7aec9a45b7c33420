// entities: named entities of a sequence of IOB2 or IOBES labels, as seqeval counts them by default. An entity begins
// at B-NAME or S-NAME, or at I-NAME or E-NAME after another label. It ends with S-NAME or E-NAME, or before another
// label. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::task {

struct EntityLabel {
  std::int64_t name = -1;  // number of the entity's name; -1: outside of entities
  bool begins = false;     // B-NAME, S-NAME
  bool ends = false;       // E-NAME, S-NAME
};

// Labels without one of the four prefixes are outside.
[[nodiscard]] std::vector<EntityLabel> entity_labels(const std::vector<std::string>& names);

struct EntityCounts {
  std::int64_t right = 0;  // with equal name, begin and end in both
  std::int64_t found = 0;
  std::int64_t wanted = 0;
};
// Both sequences have the same length.
[[nodiscard]] EntityCounts compare_entities(std::span<const EntityLabel> found, std::span<const EntityLabel> wanted);

}  // namespace sluice::task
