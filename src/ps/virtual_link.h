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

struct Push {
  PushRecord record;
  Tensors tensors;
};

class VirtualLink final : public ServerLink {
 public:
  // The server outlives it. factor: of what it pushes (PushRecord).
  VirtualLink(Server& server, WorkerId worker, double factor = 1)
      : server_(server), worker_(worker), factor_(factor), sequence_(server.join(worker, /*now=*/0)) {}

  [[nodiscard]] const Layout& layout() const override { return server_.layout(); }
  [[nodiscard]] std::int64_t pull(std::int64_t has_version, Tensors& into) override {
    check(server_.may_begin(worker_), "a worker in virtual time begins before it may");
    const Weights weights = server_.weights();
    if (weights.version == has_version) return has_version;
    for (std::size_t s = 0; s < into.shards.size(); ++s) into.shards[s].copy_(weights.tensors.shards[s]);
    into.statistics.copy_(weights.tensors.statistics);
    return weights.version;
  }
  void push(PushRecord record, Tensors pushed) override {
    check(!outgoing_, "a worker in virtual time pushes before its last push was delivered");
    record.worker = worker_;
    record.sequence = sequence_++;
    record.factor = factor_;
    outgoing_ = Push{record, std::move(pushed)};
  }

  // What it has pushed since; nothing: it has not.
  [[nodiscard]] std::optional<Push> take() { return std::exchange(outgoing_, std::nullopt); }

 private:
  Server& server_;
  WorkerId worker_;
  double factor_;
  std::int64_t sequence_;
  std::optional<Push> outgoing_;
};

}  // namespace sluice::ps
