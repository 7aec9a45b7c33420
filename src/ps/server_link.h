// server_link: what a worker's sync needs of its servers, wherever they are.
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
  // Waits until the worker may begin. Puts the weights of one version, the same for all shards, into `into`, which has
  // the layout: into its tensors, or others in their place. Returns the version.
  [[nodiscard]] virtual std::int64_t pull(Tensors& into) = 0;
  // Whether a push may go ahead of its record, span by span.
  [[nodiscard]] virtual bool takes_spans() const { return false; }
  // Some elements of the push that comes next, those of the spans one after the other: 1-d, on the CPU, the link's from
  // now on. Each element of the push once, from any thread; what was sent before the last pull is forgotten.
  virtual void push_ahead(std::size_t /*shard*/, std::vector<ShardSpan> /*spans*/, const at::Tensor& /*elements*/) {}
  // Worker, incarnation and sequence of the record are the link's to fill in. May return before the push is
  // acknowledged.
  virtual void push(Push push) = 0;
};

}  // namespace sluice::ps
