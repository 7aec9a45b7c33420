// step_graphs: which training passes run as recorded work (pipeline/action_graphs.h). The second of two alike passes in
// a row records; later ones like it run the recording. Other passes run plainly: a short last batch, a trial. If such
// passes repeat, for example with another number of chunks, the second one in a row records anew. Threads: one.
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

  // Null: the pass runs plainly. Requires: seed, options, loss and the schedule by chunks are the same in all passes.
  [[nodiscard]] std::shared_ptr<pipeline::PassGraphs> of(const pipeline::Executor& executor,
                                                         const pipeline::PassRequest& request);
  // Call after a failed pass, which leaves its recording incomplete.
  void forget() { recorded_ = {}; }

 private:
  using Shapes = std::vector<std::int64_t>;  // properties that passes have in common
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
