// step_edits: edits of a recorded step for a replay (step_replay.h). Units: nanoseconds and bytes; for a network
// seconds and bytes per second. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/link_cost.h"
#include "core/recorder.h"

namespace sluice::tune {

enum class WorkKind : std::uint8_t {
  kLoad,            // waiting for the loader
  kForward,         // including the loss
  kBackward,        // of a micro-batch, or only its input gradients if weight gradients are deferred
  kWeightGradient,  // only deferred ones
  kTransfer,
  kAllReduce,
  kOptimizer,
};
inline constexpr int kWorkKinds = 7;

[[nodiscard]] std::string_view word(WorkKind kind);
[[nodiscard]] std::optional<WorkKind> work_kind(std::string_view word);
// Empty for waiting and for time between steps.
[[nodiscard]] std::optional<WorkKind> kind_of(Phase phase);

// A piece of work of a step. A field with -1 or an empty text does not apply.
struct Work {
  WorkKind kind = WorkKind::kForward;
  int rank = 0;
  int replica = -1;
  int stage = -1;
  std::string_view device = {};
};

// An unset field matches any value; without a kind it matches forward, backward, weight gradients and optimizer.
struct WorkSelector {
  std::optional<WorkKind> kind;
  std::optional<int> rank;
  std::optional<int> replica;
  std::optional<int> stage;
  std::optional<std::string> device;  // "cpu:1"

  [[nodiscard]] bool takes(const Work& work) const;
};

struct WorkEdit {
  std::string text;  // as the user gave it, for messages
  WorkSelector of;
  double factor = 1;  // multiplies the work's time first
  double more = 0;    // added to each piece; the result is at least 0
};

struct StepEdits {
  std::vector<WorkEdit> work;
  // A network between any two processes. All all-reduces share it, one after another.
  struct Network {
    double bytes_per_s = 0;
    double latency_s = 0;
    double sum_s = 0;  // cost of an all-reduce besides its messages
  };
  std::optional<Network> network;
};

// Applies edits and records which of them matched nothing.
class EditBook {
 public:
  explicit EditBook(const StepEdits& edits) : edits_(edits), has_met_(edits.work.size()) {}

  // Time of a recorded piece of this work after edits. is_whole: `more` applies.
  [[nodiscard]] double edited(const Work& work, double recorded, bool is_whole);
  void check_all_met() const;

 private:
  const StepEdits& edits_;
  std::vector<char> has_met_;
};

}  // namespace sluice::tune
