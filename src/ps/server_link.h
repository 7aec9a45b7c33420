// server_link: what a worker's sync needs of its servers, wherever they are.
#pragma once

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
  // Worker, life and sequence of the record are the link's to fill in. May return before the push is acknowledged.
  virtual void push(Push push) = 0;
};

}  // namespace sluice::ps
