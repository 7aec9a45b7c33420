// replay_graph: the dependency graph of a recorded step, from which step_replay.h computes the replay.
// - A node is a piece of work with its edited time, or a moment, such as a barrier, which takes no time. A wait is two
//   moments: its begin and its end.
// - An edge holds a node back until another node, or a share of it, is done, plus the recorded gap between the two.
// - A resource serves one node at a time, so each node has an edge to the previous one: a device thread (its pieces of
//   one section), the process itself (loading, barriers, rounds, small sums), the network (the all-reduces of a stage;
//   of all stages if edits give the network).
// Internal to step_replay.
#pragma once

#include <span>
#include <vector>

#include "tune/event_graph.h"
#include "tune/replay_messages.h"
#include "tune/slot_pieces.h"
#include "tune/step_edits.h"
#include "tune/step_replay.h"

namespace sluice::tune {

class ReplayGraph {
 public:
  // Requires: both arguments outlive this object.
  ReplayGraph(std::span<const RecordedProcess> processes, const StepEdits& edits);

  [[nodiscard]] StepReplay run();

 private:
  // The first and the last node of a span or piece; the same for work.
  struct Nodes {
    int first = 0, last = 0;
  };
  struct SlotNodes {
    SlotPieces cut;
    std::vector<Nodes> pieces;

    [[nodiscard]] Nodes of_span(int span) const { return {pieces[cut.first[span]].first, pieces[cut.last[span]].last}; }
  };
  struct BucketNodes {
    int ready = 0;
    int all_reduce = 0;
  };
  struct ProcessNodes {
    int begin = 0, end = 0;
    std::vector<SlotNodes> slots;
    std::vector<Nodes> spans;  // [span of the process]: set for loads and small sums
    std::vector<BucketNodes> buckets;
    std::vector<int> small_sums;  // [small sum]: its span of the process
    std::vector<int> arrivals;    // [small sum]: the node of this process's arrival
    // The last node of the process itself, which its next node follows.
    int last = 0;
    Nanoseconds last_end = 0;  // as recorded
  };
  // A moment of a slot, by its recorded time.
  struct Anchor {
    int slot = 0;
    int piece = -1;  // -1: none
    Nanoseconds at = 0;
  };
  // What a process does after the pass: a round of all its threads, or a small sum.
  struct Round {
    Nanoseconds begin = 0;
    bool is_small_sum = false;
    int number = 0;  // of the small sum, or the section
  };

  void add_begin(int rank);
  void add_loads(int rank);
  void add_slots(int rank);
  void add_pieces(int rank, int slot);
  [[nodiscard]] Nodes add_piece(int rank, int slot, const Piece& piece);
  void add_messages(int rank);
  void add_message(int rank, const RecordedMessage& message, Nanoseconds usual_wake_up);

  void check_sums() const;
  void add_sums(int rank);
  void add_ready(int rank, int bucket);
  [[nodiscard]] Anchor caller_of(int rank, const BucketSpan& bucket) const;
  [[nodiscard]] Anchor same_point(int rank, int slot, const Anchor& caller) const;
  void wait_for(int node, int rank, const Anchor& anchor);
  void add_all_reduces(int rank);
  void add_all_reduce(int rank, int bucket);

  [[nodiscard]] std::vector<Round> rounds_of(int rank) const;
  [[nodiscard]] Nanoseconds begin_of_section(int rank, int section) const;
  void add_rounds(int rank);
  void add_round(int rank, int section);
  void add_barrier(int rank, int section);
  void add_small_sum(int rank, int number);
  void add_end(int rank);

  // The node begins as long after the process's last node as recorded.
  void follow_last(int rank, int node, Nanoseconds recorded_begin);
  // Adds the nodes of a span to the process's own sequence.
  void append_span(int rank, int span, Nodes nodes);

  [[nodiscard]] const StepSpans& recorded(int rank) const { return processes_[rank].spans; }
  [[nodiscard]] int ranks() const { return static_cast<int>(processes_.size()); }
  [[nodiscard]] StepSpans replayed(int rank) const;
  [[nodiscard]] Nanoseconds begin_of(int node) const;
  [[nodiscard]] Nanoseconds end_of(int node) const;
  [[nodiscard]] std::vector<EventGraph::Part> path() const;

  std::span<const RecordedProcess> processes_;
  const StepEdits& edits_;
  EditBook book_;
  EventGraph graph_;
  Nanoseconds zero_ = 0;  // recorded time that is 0 in the graph
  int source_ = 0;
  std::vector<ProcessNodes> nodes_;
  StepReplay result_;
};

}  // namespace sluice::tune
