// plan: values that say how a model is run. A Plan is replaced, never edited.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

// Number of layers per stage, first stage first; no stage is empty.
struct Partition {
  std::vector<int> layers_per_stage;

  bool operator==(const Partition&) const = default;
};

struct Plan {
  static constexpr const char* kFromFile = "order";  // schedule name of a schedule file (pipeline.order)

  Partition partition;
  int replicas = 1;
  int chunks = 1;  // micro-batches per replica and step
  std::int64_t global_batch = 1;
  std::string schedule = "1f1b";
  std::string schedule_text;  // for kFromFile: the actions as text (pipeline/schedule/draw.h)
  int virtual_stages = 1;
  // Number of first layers that are not trained and lie before the stages (pipeline/frozen_prefix.h).
  int frozen_layers = 0;
  std::vector<bool> recompute;  // [stage], keeps only layer inputs for backward; empty: none
  // [replica of all processes]: relative shares of the samples (core/parts.h); empty: equal. `chunks` is then the mean.
  std::vector<int> shares = {};

  [[nodiscard]] int stages() const { return static_cast<int>(partition.layers_per_stage.size()); }
  [[nodiscard]] int devices() const { return stages() / virtual_stages; }  // devices per replica
  [[nodiscard]] bool recomputes(int stage) const { return !recompute.empty() && recompute[stage]; }
  [[nodiscard]] bool recompute_any() const { return std::ranges::count(recompute, true) > 0; }
  [[nodiscard]] bool recompute_all() const { return stages() > 0 && std::ranges::count(recompute, true) == stages(); }
  bool operator==(const Plan&) const = default;
};

}  // namespace sluice
