// changes: what pipeline.changes asks for: the settings of a run as they change on its way. "20: stages = 2" changes
// one after step 20; what a change does not name stays as it was before it.
// Not here: the plans that follow (train/plan/plan_changes.h). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "config/rules.h"

namespace sluice::config {

struct Change {
  std::int64_t after = 0;  // steps done
  Config config;           // all settings from there on
};

// In their order. Errors: ConfigError that names the entry: one that cannot be read, with a key that no change takes or
// a value out of range, at a step that is not after those before it, or whose settings contradict each other.
[[nodiscard]] std::vector<Change> changes_of(const Config& config, const Sources& sources = {"configuration", {}});

}  // namespace sluice::config
