// step_edits: what a replay (step_replay.h) changes of a recorded step: how long pieces of work took, and the network
// that its sums over processes cross. Values. Not here: the command line's grammar (app/commands/replay_edits.cpp).
// Units: nanoseconds, bytes; of a network seconds and bytes a second. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/link_cost.h"
#include "core/recorder.h"

namespace sluice::tune {

// What a step spends time on, as its spans name it (core/recorder.h).
enum class WorkKind : std::uint8_t {
  kLoad,            // waiting for the loader
  kForward,         // and the loss
  kBackward,        // of a micro-batch, or of its inputs where the weight gradients are deferred
  kWeightGradient,  // those that were deferred
  kTransfer,        // samples onto the device, tensors between stages
  kAllReduce,       // over local replicas and over processes
  kOptimizer,
};
inline constexpr int kWorkKinds = 7;

[[nodiscard]] std::string_view word(WorkKind kind);  // "weight-gradient"
[[nodiscard]] std::optional<WorkKind> work_kind(std::string_view word);
// Nothing: of waiting, and of what lies between steps.
[[nodiscard]] std::optional<WorkKind> kind_of(Phase phase);

// A piece of work of a step. -1, or empty: it has none.
struct Work {
  WorkKind kind = WorkKind::kForward;
  int rank = 0;
  int replica = -1;
  int stage = -1;
  std::string_view device = {};
};

// Which work is meant. What is not set may be any; without a kind it is computing: forward, backward, weight gradients,
// optimizer.
struct WorkSelector {
  std::optional<WorkKind> kind;
  std::optional<int> rank;
  std::optional<int> replica;
  std::optional<int> stage;
  std::optional<std::string> device;  // "cpu:1"

  [[nodiscard]] bool takes(const Work& work) const;
};

struct WorkEdit {
  std::string text;  // as it was given, for messages
  WorkSelector of;
  double factor = 1;  // of what the work took, then
  double more = 0;    // to each piece; it never gets below 0
};

struct StepEdits {
  std::vector<WorkEdit> work;  // one after another
  // Between any two processes. All sums over them share it, one after another.
  struct Network {
    double bytes_per_s = 0;
    double latency_s = 0;  // of a message
    double sum_s = 0;      // what a sum costs besides its messages
  };
  std::optional<Network> network;
};

// Applies edits, and knows which of them have met nothing.
class EditBook {
 public:
  explicit EditBook(const StepEdits& edits) : edits_(edits), has_met_(edits.work.size()) {}

  // What a recorded piece of this work takes. is_whole: it takes `more`.
  [[nodiscard]] double edited(const Work& work, double recorded, bool is_whole);
  // ConfigError for an edit that no work was of.
  void check_all_met() const;

 private:
  const StepEdits& edits_;
  std::vector<char> has_met_;
};

}  // namespace sluice::tune
