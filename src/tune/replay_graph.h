// replay_graph: builds the graph of a recorded step (step_replay.h), with one node for each piece of work. Internal to
// step_replay.
#pragma once

#include <span>
#include <vector>

#include "tune/event_graph.h"
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
  // The first and the last node of a span or piece.
  struct Nodes {
    int first = 0, last = 0;
  };
  struct SlotNodes {
    SlotPieces cut;
    std::vector<Nodes> pieces;
  };
  struct SumNodes {
    int ready = 0;
    int exchange = 0;
  };
  struct ProcessNodes {
    int begin = 0, end = 0;
    std::vector<SlotNodes> slots;
    std::vector<Nodes> spans;
    std::vector<SumNodes> sums;
    std::vector<int> small_sums;  // the process's spans that are small sums, in order
    int done = 0;                 // the node that the next one waits for
    Nanoseconds done_at = 0;
  };
  // A moment of a slot, by its recorded time.
  struct Anchor {
    int slot = 0;
    int piece = -1;
    Nanoseconds at = 0;
  };

  void add_begin(int rank);
  void add_pieces(int rank, int slot);
  void add_messages(int rank);
  void check_sums() const;
  void add_sums(int rank);
  void add_ready(int rank, int bucket);
  [[nodiscard]] Anchor caller_of(int rank, const BucketSpan& bucket) const;
  [[nodiscard]] Anchor same_point(int rank, int slot, const Anchor& caller) const;
  void wait_for(int node, int rank, const Anchor& anchor);
  void add_exchanges();
  void add_exchange(int rank, int bucket);
  void add_rounds(int rank);
  void add_round(int rank, int section);
  void add_barrier(int rank, int section);
  void add_small_sum(int rank, int number);
  void next(int rank, int node, Nanoseconds recorded_begin);

  [[nodiscard]] const StepSpans& recorded(int rank) const { return processes_[rank].spans; }
  [[nodiscard]] int ranks() const { return static_cast<int>(processes_.size()); }
  [[nodiscard]] StepSpans replayed(int rank) const;
  [[nodiscard]] Nanoseconds time(int node) const;
  [[nodiscard]] std::vector<EventGraph::Part> path() const;

  std::span<const RecordedProcess> processes_;
  const StepEdits& edits_;
  EditBook book_;
  EventGraph graph_;
  Nanoseconds zero_ = 0;  // recorded time that is 0 in the graph
  int source_ = 0;
  std::vector<ProcessNodes> nodes_;
  std::vector<std::vector<int>> arrive_;
  StepReplay result_;
};

}  // namespace sluice::tune
