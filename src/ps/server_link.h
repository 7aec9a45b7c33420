// server_link: the interface between a worker's sync and its servers.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/push.h"

namespace sluice::ps {

class ServerLink {
 public:
  ServerLink() = default;
  virtual ~ServerLink() = default;
  ServerLink(const ServerLink&) = delete;
  ServerLink& operator=(const ServerLink&) = delete;

  [[nodiscard]] virtual const Layout& layout() const = 0;
  // Blocks until the worker may begin. Sets `into` to the weights of one version, the same for all shards: it writes
  // its tensors or replaces them. Requires that `into` has the layout. Returns the version.
  [[nodiscard]] virtual std::int64_t pull(Tensors& into) = 0;
  // Whether a push may be sent ahead of its record, span by span.
  [[nodiscard]] virtual bool takes_spans() const { return false; }
  // Sends some elements of the next push: those of the spans, one after the other; 1-d, on the CPU. The link owns the
  // tensor. Each element of the push is sent once, from any thread. pull() discards elements sent before it.
  virtual void push_ahead(std::size_t /*shard*/, std::vector<ShardSpan> /*spans*/, const at::Tensor& /*elements*/) {}
  // The link fills in worker, incarnation and sequence of the record. May return before the push is acknowledged.
  virtual void push(Push push) = 0;
};

}  // namespace sluice::ps
