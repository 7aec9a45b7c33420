// step_graphs: which training passes of a composition run as recorded work (pipeline/action_graphs.h). Two passes on
// end that are alike run plainly and recording; those like them that follow run what was recorded. Others run plainly:
// a short last batch, a trial, a step whose gradients somebody looks at on the way. Where they become the rule, after a
// change of the number of chunks, the second one records anew.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/graph.h"
#include "pipeline/executor.h"

namespace sluice::engine {

class StepGraphs {
 public:
  explicit StepGraphs(device::GraphFactory make) : make_(std::move(make)) {}

  // Of the next training pass, whose schedule is the composition's for its number of micro-batches; null: plainly.
  // Requires: seed, options and loss are the same in all of them.
  [[nodiscard]] std::shared_ptr<pipeline::PassGraphs> of(const pipeline::Executor& executor,
                                                         const pipeline::PassRequest& request);
  // After a pass that failed, in the midst of what is recorded.
  void forget() { recorded_ = {}; }

 private:
  using Shapes = std::vector<std::int64_t>;  // what passes have in common
  [[nodiscard]] static Shapes shapes_of(const pipeline::PassRequest& request);

  struct Recorded {
    Shapes shapes;
    std::shared_ptr<pipeline::PassGraphs> graphs;
  };

  device::GraphFactory make_;
  Recorded recorded_;
  Shapes last_plain_;
};

}  // namespace sluice::engine
