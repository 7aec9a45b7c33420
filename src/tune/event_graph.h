// event_graph: computes when pieces of work begin and end from their dependencies, and finds the critical path. Pure.
// Times in nanoseconds, as double. Threads: one. Errors: DataError for a cycle.
#pragma once

#include <optional>
#include <vector>

#include "tune/step_edits.h"

namespace sluice::tune {

struct WorkLabel {
  std::optional<WorkKind> kind;  // empty: time between pieces of work, attributed to the later one's stage
  int rank = -1;
  int stage = -1;

  auto operator<=>(const WorkLabel&) const = default;
};

class EventGraph {
 public:
  // Adds a node that begins at 0 or when all its dependencies are met. Returns its index.
  int add(double work, const WorkLabel& label = {});
  // `node` begins at least `lag` after this share of the work of `from` is done.
  void wait(int node, int from, double lag = 0, double share = 1);

  void run();  // call once, after all nodes are added
  [[nodiscard]] double begin(int node) const { return nodes_[node].begin; }
  [[nodiscard]] double end(int node) const { return nodes_[node].begin + nodes_[node].work; }

  // The critical path from 0 to the begin of `node`. Its times add up to begin(node).
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
    int latest = -1;  // the dependency that is met last
  };

  [[nodiscard]] std::vector<int> in_order() const;

  std::vector<Node> nodes_;
};

}  // namespace sluice::tune
