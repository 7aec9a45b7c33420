// graph: device work that is recorded once and launched as a whole (CUDA graphs), so that short kernels do not wait for
// the host. Recording runs nothing. A launch uses the addresses, shapes and scalar arguments from recording.
// The graphs of a sequence share memory: a result kept for a later graph is valid until that graph has run. Therefore
// graphs run in recording order, all or none, one sequence on one stream, and nothing else writes to that memory.
// Threads: a sequence and its graphs belong to one thread at a time, whose current stream is the sequence's. Sequences
// may record concurrently; create and destroy them while none records. During a recording keep_alive() (stream.h) has
// no effect on that device: keep a reference to the tensor instead.
// Errors: those of the work; after LibTorch's error that it cannot record an operation, its memory of the device may be
// unusable.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "device/device.h"
#include "device/stream.h"

namespace sluice::device {

// Any tensor may be undefined. Must not wait for other work; all else that it reads must live as long as the graph.
using GraphWork = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

class Graph {
 public:
  virtual ~Graph() = default;
  [[nodiscard]] virtual const std::vector<at::Tensor>& inputs() const = 0;
  virtual void launch() = 0;
  // Output memory, valid until the next launch of the sequence.
  [[nodiscard]] virtual const std::vector<at::Tensor>& outputs() const = 0;
};

class GraphSequence {
 public:
  virtual ~GraphSequence() = default;
  // inputs: tensors with the shapes of later inputs; their values are not read.
  [[nodiscard]] virtual std::unique_ptr<Graph> record(const std::vector<at::Tensor>& inputs, const GraphWork& work) = 0;
};

using GraphFactory = std::function<std::unique_ptr<GraphSequence>(const Stream&)>;

// Creates a sequence on a GPU. Releases LibTorch's cached memory on it, which graphs cannot use.
[[nodiscard]] std::unique_ptr<GraphSequence> make_graph_sequence(const Stream& stream);

void require_graphs(const std::vector<Device>& devices);

}  // namespace sluice::device
