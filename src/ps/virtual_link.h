// virtual_link: a worker in the process of its server, one step at a time: what it pushes waits here until its owner
// delivers it. Threads: one. Errors: BugError where it pulls though it may not begin.
#pragma once

#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"
#include "ps/server.h"
#include "ps/server_link.h"

namespace sluice::ps {

class VirtualLink final : public ServerLink {
 public:
  // The server outlives it.
  VirtualLink(Server& server, WorkerId worker)
      : server_(server), worker_(worker), life_(server.join(worker, /*now=*/0)) {}

  [[nodiscard]] const Layout& layout() const override { return server_.layout(); }
  [[nodiscard]] std::int64_t pull(Tensors& into) override {
    static_cast<void>(server_.begin(worker_));
    const Weights weights = server_.weights();
    into.copy_from(weights.tensors);
    return weights.version;
  }
  void push(Push push) override {
    check(!outgoing_, "a worker in virtual time pushes before its last push was delivered");
    push.record.worker = worker_;
    push.record.life = life_;
    push.record.sequence = ++pushes_;
    outgoing_ = std::move(push);
  }

  // What it has pushed since; nothing: it has not.
  [[nodiscard]] std::optional<Push> take() { return std::exchange(outgoing_, std::nullopt); }

 private:
  Server& server_;
  WorkerId worker_;
  int life_;
  std::int64_t pushes_ = 0;
  std::optional<Push> outgoing_;
};

}  // namespace sluice::ps
