// plan: the values that say how a model is run. Decided by train/ (from the configuration) or tune/; nobody edits one
// in place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

// Layers per stage, first stage first. Every layer that is not frozen in exactly one stage; no stage is empty.
struct Partition {
  std::vector<int> layers_per_stage;

  bool operator==(const Partition&) const = default;
};

struct Plan {
  static constexpr const char* kFromFile = "order";  // not made by its name: the user wrote it

  Partition partition;
  int replicas = 1;               // local replicas of the whole pipeline
  int chunks = 1;                 // micro-batches a replica runs per step
  std::int64_t global_batch = 1;  // samples per optimizer step over all replicas
  std::string schedule = "1f1b";  // its name, or kFromFile
  std::string schedule_text;      // with kFromFile: the actions as text (pipeline/schedule/draw.h)
  int virtual_stages = 1;         // stages a device
  // The model's first layers, which are not trained and lie before the stages (pipeline/frozen_prefix.h).
  int frozen_layers = 0;
  std::vector<bool> recompute;  // [stage]: keeps only the inputs of its layers until its backward; empty: none does

  [[nodiscard]] int stages() const { return static_cast<int>(partition.layers_per_stage.size()); }
  [[nodiscard]] int devices() const { return stages() / virtual_stages; }  // of a replica
  [[nodiscard]] bool recomputes(int stage) const { return !recompute.empty() && recompute[stage]; }
  [[nodiscard]] bool recompute_any() const { return std::ranges::count(recompute, true) > 0; }
  [[nodiscard]] bool recompute_all() const { return stages() > 0 && std::ranges::count(recompute, true) == stages(); }
  bool operator==(const Plan&) const = default;
};

}  // namespace sluice
