// event_graph: pieces of work, and what each waits for: when they begin and end, and which of them make the length of
// the whole. Pure. Times in nanoseconds, as double. Not here: where the pieces come from (step_replay.h). Threads: one.
// Errors: DataError where pieces wait for each other in a ring.
#pragma once

#include <optional>
#include <vector>

#include "tune/step_edits.h"

namespace sluice::tune {

// Whose time it is.
struct WorkLabel {
  std::optional<WorkKind> kind;  // nothing: time between pieces of work, of the stage of the later one
  int rank = -1;
  int stage = -1;

  auto operator<=>(const WorkLabel&) const = default;
};

class EventGraph {
 public:
  // Begins at 0, or when all that it waits for is there.
  int add(double work, const WorkLabel& label = {});
  // `node` begins no earlier than `lag` after this share of the work of `from` is done.
  void wait(int node, int from, double lag = 0, double share = 1);

  void run();  // once, when all is added
  [[nodiscard]] double begin(int node) const { return nodes_[node].begin; }
  [[nodiscard]] double end(int node) const { return nodes_[node].begin + nodes_[node].work; }

  // Back from the begin of `node` to 0, by who was waited for longest: the times add up to begin(node).
  struct Part {
    WorkLabel label;
    double time = 0;
  };
  [[nodiscard]] std::vector<Part> path_to(int node) const;

 private:
  struct Edge {
    int from;
    double lag;
    double share;
  };
  struct Node {
    double work;
    WorkLabel label;
    std::vector<Edge> waits_for;
    double begin = 0;
    int latest = -1;  // of waits_for
  };

  [[nodiscard]] std::vector<int> in_order() const;

  std::vector<Node> nodes_;
};

}  // namespace sluice::tune
