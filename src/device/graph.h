// graph: work that a device does again and again, recorded once and then started as a whole (CUDA graphs): what the
// host does for each kernel is done once, so short kernels do not wait for it. Recording runs nothing. What runs later
// has the addresses, shapes and plain numbers of when it was recorded; other numbers reach it through memory that the
// work reads.
// The graphs of a sequence share memory: what one keeps for a later one lies there until that one has run, and then
// belongs to whatever was recorded next. So they run in the order in which they were recorded, all of them or none, one
// sequence on one stream, and between them nothing else writes there.
// Not here: what is recorded, and when (pipeline/action_graphs.h).
// Threads: a sequence and its graphs belong to one thread at a time, whose current stream is the sequence's; making and
// destroying them, too, while no other sequence of the process is recording. Several sequences may record beside each
// other, and other threads use the device meanwhile; but what keep_alive() (stream.h) is told of a device while
// something records there is lost: who relies on it keeps the tensor itself. Errors: what the work throws, and
// LibTorch's own where the device refuses to record something: after that LibTorch's memory of the device may be of no
// more use.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "device/device.h"
#include "device/stream.h"

namespace sluice::device {

// From tensors to tensors, any of which may be undefined. It waits for nothing that is not its own, and what else it
// reads lives as long as the graph.
using GraphWork = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

class Graph {
 public:
  virtual ~Graph() = default;
  // Where the work reads its inputs: the caller writes them there before each launch().
  [[nodiscard]] virtual const std::vector<at::Tensor>& inputs() const = 0;
  virtual void launch() = 0;
  // Where it leaves its results: until the next launch of its sequence.
  [[nodiscard]] virtual const std::vector<at::Tensor>& outputs() const = 0;
};

class GraphSequence {
 public:
  virtual ~GraphSequence() = default;
  // inputs: shaped like those that it will have; their values are not read.
  [[nodiscard]] virtual std::unique_ptr<Graph> record(const std::vector<at::Tensor>& inputs, const GraphWork& work) = 0;
};

using GraphFactory = std::function<std::unique_ptr<GraphSequence>(const Stream&)>;

// Of a GPU. Gives the memory back that LibTorch keeps of it for later requests: graphs cannot take it.
[[nodiscard]] std::unique_ptr<GraphSequence> make_graph_sequence(const Stream& stream);

// ConfigError where one of them cannot record.
void require_graphs(const std::vector<Device>& devices);

}  // namespace sluice::device
